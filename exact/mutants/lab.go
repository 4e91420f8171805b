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
	"sync"
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
		"arithmetic", "exact", "DIANA_OPS=20000",
		[][]string{{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=1ms"}},
	}
	stores = suite{
		"stores", "stores", "DIANA_OPS=4000",
		[][]string{{"-test.run=" + widest}, {"-test.skip=" + widest + "|" + slow}, {"-test.run=" + slow}},
	}
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
	root string
	dir  string // for what is built
	lua  func() (string, error)
}

func newLab(root, dir string) *lab {
	l := &lab{root: root, dir: dir}
	l.lua = sync.OnceValues(l.buildForLua)
	return l
}

// apply returns the mutated file.
func (l *lab) apply(m mutant) (string, error) {
	text, err := os.ReadFile(filepath.Join(l.root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("mutant %s: its text occurs %d times in %s, want once:\n%s", m.name, n, m.file, m.old)
	}
	return strings.Replace(string(text), m.old, m.new, 1), nil
}

// try runs the suites over one mutant until a test fails.
func (l *lab) try(m mutant) outcome {
	o := outcome{mutant: m}
	dir := filepath.Join(l.dir, m.name)
	if o.err = os.Mkdir(dir, 0o700); o.err != nil {
		return o
	}
	defer func() { _ = os.RemoveAll(dir) }()
	changed := filepath.Join(dir, filepath.Base(m.file))
	if text, err := l.apply(m); err != nil {
		o.err = err
		return o
	} else if o.err = os.WriteFile(changed, []byte(text), 0o600); o.err != nil {
		return o
	}
	if strings.HasSuffix(m.file, ".lua") {
		var binary string
		if binary, o.err = l.lua(); o.err == nil {
			o.killer = l.test(stores, binary, mutatedLua+"="+changed)
		}
		return o
	}
	for _, s := range m.suites {
		binary := filepath.Join(dir, s.name)
		if o.err = l.build(s, dir, binary, map[string]string{m.file: changed}); o.err != nil {
			return o
		}
		if o.killer = l.test(s, binary); o.killer != "" {
			return o
		}
	}
	return o
}

// healthy says whether the tests pass on the code as it is.
func (l *lab) healthy() error {
	for _, s := range []suite{arithmetic, stores} {
		binary := filepath.Join(l.dir, s.name)
		if err := l.build(s, l.dir, binary, nil); err != nil {
			return err
		}
		if killer := l.test(s, binary); killer != "" {
			return fmt.Errorf("the unbroken code fails %s", killer)
		}
	}
	return nil
}

// build builds the tests with files of dir laid over those of the work tree.
func (l *lab) build(s suite, dir, binary string, changed map[string]string) error {
	replace := make(map[string]string)
	for file, by := range changed {
		replace[filepath.Join(l.root, file)] = by
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".") //nolint:gosec // paths of our own
	cmd.Dir = filepath.Join(l.root, s.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %s", bytes.TrimSpace(out))
	}
	return nil
}

// test returns the first test that failed.
func (l *lab) test(s suite, binary string, env ...string) string {
	for _, args := range s.runs {
		if killer := l.testSome(s, binary, args, env); killer != "" {
			return killer
		}
	}
	return ""
}

// testSome returns the first of some tests that failed. What it started, such
// as Redis, is stopped with it even if it ended in a panic: all of it is one
// process group.
func (l *lab) testSome(s suite, binary string, args, env []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience+grace)
	defer cancel()
	args = append([]string{"-test.failfast", "-test.v", "-test.timeout=" + patience.String()}, args...)
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // the tests that were just built
	cmd.Dir = filepath.Join(l.root, s.dir)
	cmd.Env = append(append(os.Environ(), s.env, "DIANA_SEED=1"), env...)
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
