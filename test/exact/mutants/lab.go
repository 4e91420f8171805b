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

// suite is a package of tests and how it is run.
type suite struct {
	name string
	dir  string // of the package, relative to the root
	env  string
	runs [][]string // one after the other, the quickest first
}

// The seeds are fixed, so that a mutant that was killed is killed again.
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
	acrossStores = suite{"stores", "internal/stores", "DIANA_OPS=4000", [][]string{{}}}

	suites = []suite{arithmetic, redisStore, memoryStore, acrossStores}
)

// widest is the test that notices most, slow are those that wait for servers or
// for the real time.
const (
	widest = "^TestStoresAgree$"
	slow   = "^Test(Cluster|Promoted|StoresAgreeInRealTime)"
)

// Mutants may loop for ever, in Go and in Redis.
const (
	patience = 45 * time.Second
	grace    = 15 * time.Second
)

// lab is where mutants are built and tried.
type lab struct {
	ctx  context.Context // ends when the program is told to stop
	root string
	dir  string // for what is built
}

// apply returns the text of the mutant's file, mutated.
func (l *lab) apply(m mutant) (string, error) {
	b, err := os.ReadFile(filepath.Join(l.root, m.file))
	if err != nil {
		return "", err
	}
	text := string(b)
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: its text occurs %d times in %s, want once:\n%s", m.name, n, m.file, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// build builds the tests, once, with all mutants in them. Files of our own are
// laid over the work tree, or added to it, for the build alone.
func (l *lab) build(all []mutant) error {
	replace, err := l.infect(all)
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
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", l.binary(s), ".") //nolint:gosec // paths of our own
		cmd.Dir = filepath.Join(l.root, s.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("a mutant does not build: %s", bytes.TrimSpace(out))
		}
	}
	return nil
}

func (l *lab) binary(s suite) string { return filepath.Join(l.dir, s.name+".test") }

// try runs the suites over one mutant until a test fails.
func (l *lab) try(m mutant) outcome {
	env := infected + "=" + m.name
	if strings.HasSuffix(m.file, ".lua") {
		env = infected + "=" + l.luaFile(m)
	}
	for _, s := range m.suites {
		if killer := l.test(s, env); killer != "" {
			return outcome{m, killer}
		}
	}
	return outcome{m, ""}
}

// healthy says whether the tests pass on the code as it is.
func (l *lab) healthy() error {
	for _, s := range suites {
		if killer := l.test(s, infected+"="); killer != "" {
			return fmt.Errorf("the unbroken code fails %s", killer)
		}
	}
	return nil
}

// test returns the first test that failed.
func (l *lab) test(s suite, env string) string {
	for _, args := range s.runs {
		if killer := l.testSome(s, args, env); killer != "" {
			return killer
		}
	}
	return ""
}

// testSome returns the first of some tests that failed. What it started, such
// as Redis, is stopped with it even if it ended in a panic: all of it is one
// process group.
func (l *lab) testSome(s suite, args []string, env string) string {
	ctx, cancel := context.WithTimeout(l.ctx, patience+grace)
	defer cancel()
	args = append([]string{"-test.failfast", "-test.v", "-test.timeout=" + patience.String()}, args...)
	cmd := exec.CommandContext(ctx, l.binary(s), args...) //nolint:gosec // the tests that were just built
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

// killer names the test that failed, or that was under way when all ended.
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
