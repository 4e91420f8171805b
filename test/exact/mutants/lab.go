//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// suite is a test package and how it is run.
type suite struct {
	name string
	dir  string // folder of the package, relative to the root
	env  string
	runs [][]string // arguments of consecutive runs, fastest first
}

// The seeds are fixed, so that results are reproducible.
var (
	arithmetic = suite{
		"arithmetic", "test/exact", "DIANA_OPS=20000",
		[][]string{{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ms"}},
	}
	redisStore = suite{
		"redis", "internal/stores/redis", "DIANA_OPS=4000",
		[][]string{{"-test.run=" + widest}, {"-test.skip=" + widest + "|" + slow}, {"-test.run=" + slow}},
	}
	memoryStore  = suite{"memory", "internal/stores/memory", "DIANA_OPS=4000", [][]string{{}}}
	outageTests  = suite{"outage", "internal/stores/outage", "", [][]string{{}}}
	acrossStores = suite{"stores", "stores", "DIANA_OPS=4000", [][]string{{}}}
	conformance  = suite{"storetest", "storetest", "", [][]string{{}}}
	keys         = suite{"keys", "internal/key", "", [][]string{{}}}

	limiterTests = suite{"limiter", "internal/limiter", "DIANA_OPS=4000", [][]string{{}}}
	reloads      = suite{"reloads", "test", "", [][]string{{"-test.run=^TestDebtsOfAReplacedStoreAreCounted$"}}}
	bodyTests    = suite{"body", "internal/body", "DIANA_OPS=4000", [][]string{{}}}
	subscribing  = suite{"subscribe", "internal/lib/subscribe", "", [][]string{{}}}
)

// widest is the test that kills most mutants. slow are tests that wait for servers or
// for real time.
const (
	widest = "^TestStoresAgree$"
	slow   = "^Test(Cluster|Promoted|StoresAgreeInRealTime)"
)

// Mutants may loop forever, in Go and in Redis. On a busy machine tests take long without a
// mutant, too, so that each run of a suite has a multiple of what it took then.
const (
	leastPatience = 45 * time.Second
	patienceTimes = 4
	mostPatience  = 15 * time.Minute // for tests without a mutant
	grace         = 15 * time.Second
)

// lab builds and tries mutants.
type lab struct {
	ctx  context.Context // canceled when the program is interrupted
	root string
	dir  string // temporary folder

	functions map[string][]function    // of the product, by name; nil: not read yet
	took      map[string]time.Duration // how long each run took without a mutant; by runID
}

// runID identifies the run of a suite with these arguments.
func runID(s suite, args []string) string { return s.name + " " + strings.Join(args, " ") }

// patience returns how long the tests of a run may take.
func (l *lab) patience(s suite, args []string) time.Duration {
	if took, ok := l.took[runID(s, args)]; ok {
		return max(leastPatience, patienceTimes*took)
	}
	return mostPatience
}

// function returns the function that a mutant changes.
func (l *lab) function(m mutant) (function, error) {
	if l.functions == nil {
		all, err := functions(l.root)
		if err != nil {
			return function{}, err
		}
		l.functions = all
	}
	found := l.functions[m.in]
	if len(found) != 1 {
		return function{}, fmt.Errorf("mutant %s: %d functions %s, want one in a package of packages", m.name, len(found), m.in)
	}
	return found[0], nil
}

// applyLua returns the text of the mutant's file with its change.
func (l *lab) applyLua(m mutant) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.root, m.in))
	if err != nil {
		return "", err
	}
	text := string(b)
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: the text occurs %d times in %s, want once:\n%s", m.name, n, m.in, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// build builds the tests once, with all mutants, by an overlay of the work tree.
func (l *lab) build(all []mutant, suites ...suite) error {
	replace, err := l.overlay(all)
	if err != nil {
		return err
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(l.dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return err
	}
	for _, s := range suites {
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", l.binary(s), ".") //nolint:gosec // our own paths
		cmd.Dir = filepath.Join(l.root, s.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("a mutant does not build: %s", bytes.TrimSpace(out))
		}
	}
	return nil
}

func (l *lab) binary(s suite) string { return filepath.Join(l.dir, s.name+".test") }

// try runs the suites with one active mutant until a test fails.
func (l *lab) try(m mutant) outcome {
	env := mutantVariable + "=" + m.name
	if m.isLua() {
		env = mutantVariable + "=" + l.luaFile(m)
	}
	for _, s := range m.suites {
		if killer := l.test(s, env); killer != "" {
			return outcome{m, killer}
		}
	}
	return outcome{m, ""}
}

// healthy checks that the tests pass without a mutant, and notes how long they take.
func (l *lab) healthy(suites []suite) error {
	l.took = make(map[string]time.Duration)
	for _, s := range suites {
		for _, args := range s.runs {
			begun := time.Now()
			if killer := l.testSome(s, args, mutantVariable+"="); killer != "" {
				return fmt.Errorf("the unchanged code fails %s", killer)
			}
			l.took[runID(s, args)] = time.Since(begun)
		}
	}
	return nil
}

// test runs a suite and returns the first test that failed.
func (l *lab) test(s suite, env string) string {
	for _, args := range s.runs {
		if killer := l.testSome(s, args, env); killer != "" {
			return killer
		}
	}
	return ""
}

// testSome runs some tests and returns the first that failed. The tests and their
// subprocesses, such as Redis, are one process group, which is killed at the end, even
// after a panic.
func (l *lab) testSome(s suite, args []string, env string) string {
	patience := l.patience(s, args)
	ctx, cancel := context.WithTimeout(l.ctx, patience+grace)
	defer cancel()
	args = append([]string{"-test.failfast", "-test.v", "-test.timeout=" + patience.String()}, args...)
	cmd := exec.CommandContext(ctx, l.binary(s), args...) //nolint:gosec // the tests built before
	cmd.Dir = filepath.Join(l.root, s.dir)
	cmd.Env = append(os.Environ(), s.env, "DIANA_SEED=1", env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if err == nil {
		return ""
	}
	return killer(out.String(), err)
}

var (
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	running = regexp.MustCompile(`(?m)running tests:\n\s+(\S+)`)
	started = regexp.MustCompile(`(?m)^=== (?:RUN|CONT)\s+(\S+)`)
)

// killer returns the name of the test that failed, or that was running at the end.
func killer(out string, err error) string {
	if m := running.FindStringSubmatch(out); m != nil {
		return m[1] + ", which does not end"
	}
	if m := failed.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if all := started.FindAllStringSubmatch(out, -1); all != nil {
		return all[len(all)-1][1] + ", which panics"
	}
	return err.Error()
}
