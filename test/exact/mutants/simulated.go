//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// simulation is the suite of test/simulation. Of it, how long it takes to find a mutant is
// of interest.
var simulation = suite{name: "simulation", dir: "test/simulation"}

// simulated are the mutants that the simulation has to find: each breaks a mechanism that
// keeps a promise over a fault.
var simulated = []string{
	"permits-lost", "permits-renewed-late", "permits-unknown", "permits-end-late", "permits-acked",
	"lua-permits-naive", "lua-permits-charged", "lua-permits-known", "lua-permits-lapse", "lua-permits-report-charge", "lua-permits-clock",
	"lost-not-taken", "lost-less", "lost-heartbeat", "lost-look-keys", "lua-lost-fast",
	"fallback-share", "fallback-cold", "fallback-base", "fallback-paid-twice", "fallback-ghost", "fallback-rejected", "fallback-finish", "fallback-background",
	"debt-sliding-age", "debt-clock-back", "debt-clock-back-fixed", "late-call", "lease-end", "permits-drain",
}

var found = regexp.MustCompile(`(\d+) seeds, (\S+) simulated in (\S+):`)

// simulate runs the simulation with each of the mutants, for the time given at most, and
// prints how long it took to find it.
func (l *lab) simulate(chosen []mutant, longest time.Duration) error {
	chosen = slices.DeleteFunc(chosen, func(m mutant) bool { return !slices.Contains(simulated, m.name) })
	if err := l.build(chosen, simulation); err != nil {
		return err
	}
	unfound := 0
	fmt.Println("| mutant | what it breaks | found after | simulated | seeds | violated |\n|---|---|---|---|---|---|")
	for _, m := range chosen {
		began := time.Now()
		out, failed := l.simulateOne(m, longest)
		took := time.Since(began).Round(time.Second)
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		simulated, seeds, promise := "", "", ""
		if f := found.FindSubmatch(out); f != nil {
			seeds, simulated = string(f[1]), string(f[2])
		}
		for line := range bytes.Lines(out) {
			if _, text, ok := strings.Cut(string(line), "violated: "); ok && promise == "" {
				promise, _, _ = strings.Cut(text, ": ")
			}
		}
		if !failed || promise == "" {
			unfound++
			promise = "**not found**"
		}
		fmt.Printf("| %s | %s | %v | %s | %s | %s |\n", m.name, m.breaks, took, simulated, seeds, promise)
	}
	if unfound > 0 {
		return fmt.Errorf("%d of %d mutants were not found", unfound, len(chosen))
	}
	return nil
}

// simulateOne runs the simulation with a mutant and returns its output.
func (l *lab) simulateOne(m mutant, longest time.Duration) (out []byte, failed bool) {
	env := mutantVariable + "=" + m.name
	if strings.HasSuffix(m.file, ".lua") {
		env = mutantVariable + "=" + l.luaFile(m)
	}
	cmd := exec.CommandContext(l.ctx, l.binary(simulation), "-test.run=^TestSimulation$", "-test.v", "-test.timeout=0") //nolint:gosec // built before
	cmd.Dir = filepath.Join(l.root, simulation.dir)
	cmd.Env = append(os.Environ(), "DIANA_SIMULATE="+longest.String(), "DIANA_SHRINK=0s", env)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	return out, err != nil
}
