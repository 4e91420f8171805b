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
//
// Not in it are mutants that break no promise here:
//   - debt-sliding-age: Redis charges debts by its own text.
//   - lua-debt-sliding: a debt that leaves its window a part later admits less.
//   - lost-not-taken, lua-lost-fast: the reply to the next request, which is less than the snapshot,
//     has it put back (lost-less), except with limits that vary, which are not simulated.
//   - lua-lease-part: what is spent of a lease behind the end of a part leaves the window early by less
//     than the lease, which admits more only at a rate that no run has.
//   - lost-less: a loss may admit what the first instance to ask had not been told, and the others
//     were told no more than the rest.
//   - lifetime-reports: the next configuration has muted the store before.
//   - permits-end-late, permits-retry: the next renewal, and the return of Redis, repeat the report
//     in the time that the promise leaves.
//   - ramp-hold: the bound leaves every instance its share in an outage, whenever it returns.
//
// And breaker-unordered, which needs two goroutines that run at the same instant: a run has one
// processor.
var simulated = []string{
	"permits-lost", "permits-renewed-late", "permits-put-off", "permits-unknown", "permits-acked", "permits-given-up",
	"lua-permits-naive", "lua-permits-charged", "lua-permits-known", "lua-permits-lapse", "lua-permits-report-charge", "lua-permits-clock",
	"lua-permits-write", "lua-permits-older", "held-shared", "held-released",
	"lost-heartbeat", "lost-look-keys", "lost-background", "lost-clock", "lost-reset", "lua-lost-refused",
	"fallback-share", "fallback-cold", "fallback-base", "fallback-paid-twice", "fallback-ghost", "fallback-rejected", "fallback-apart", "fallback-finish", "fallback-background",
	"fallback-fewer", "settle-lost", "lifetime-debts", "lifetime-closed", "late-clock",
	"late-call", "breaker-impatient", "lease-end", "lease-long", "permits-drain",
}

var found = regexp.MustCompile(`(\d+) seeds, (\S+) simulated in (\S+):`)

// simulate runs the simulation with each of the mutants, for the time given at most, and
// prints how long it took to find it.
func (l *lab) simulate(chosen []mutant, longest time.Duration) (rows map[string]string, err error) {
	chosen = slices.DeleteFunc(chosen, func(m mutant) bool { return !slices.Contains(simulated, m.name) })
	if err := l.build(chosen, simulation); err != nil {
		return nil, err
	}
	unfound, rows := 0, make(map[string]string)
	fmt.Print(foundHeader)
	for _, m := range chosen {
		began := time.Now()
		out, failed := l.simulateOne(m, longest)
		took := time.Since(began).Round(time.Second)
		if l.ctx.Err() != nil {
			return nil, l.ctx.Err()
		}
		simulated, seeds, promise := "", "", ""
		if f := found.FindSubmatch(out); f != nil {
			seeds, simulated = string(f[1]), string(f[2])
		}
		for line := range bytes.Lines(out) {
			if _, text, ok := strings.Cut(string(line), "violated: "); ok && promise == "" {
				if promise, _, _ = strings.Cut(text, ": "); promise == "a run ends" {
					promise = strings.TrimSpace(text) // and how
				}
			}
		}
		if !failed || promise == "" {
			unfound++
			promise = "**not found**"
		}
		rows[m.name] = fmt.Sprintf("| %s | %s | %v | %s | %s | %s |", m.name, m.breaks, took, simulated, seeds, promise)
		fmt.Println(rows[m.name])
	}
	if unfound > 0 {
		return rows, fmt.Errorf("%d of %d mutants were not found", unfound, len(chosen))
	}
	return rows, nil
}

const (
	foundSection = "\n## Found by the simulation\n"
	foundHeader  = "| mutant | what it breaks | found after | simulated | seeds | violated |\n|---|---|---|---|---|---|\n"
)

// writeFound updates the table in a section of a document, in which rows of other mutants
// stay.
func writeFound(out string, rows map[string]string) error {
	text, err := os.ReadFile(out) //nolint:gosec // named on the command line
	if err != nil {
		return err
	}
	before, last, _ := strings.Cut(string(text), foundSection)
	for line := range strings.Lines(last) {
		if cells := strings.SplitN(line, " ", 3); cells[0] == "|" && rows[cells[1]] == "" {
			rows[cells[1]] = strings.TrimSpace(line)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\nHow long the simulation takes to find that a mechanism is broken:\n"+
		"`go run ./mutants -simulated 10m` in `test/exact/`, on two cores.\n\n%s", before, foundSection, foundHeader)
	for _, name := range simulated {
		if rows[name] != "" {
			fmt.Fprintln(&b, rows[name])
		}
	}
	return os.WriteFile(out, []byte(b.String()), 0o644) //nolint:gosec // a document for everyone
}

// simulateOne runs the simulation with a mutant and returns its output.
func (l *lab) simulateOne(m mutant, longest time.Duration) (out []byte, failed bool) {
	env := mutantVariable + "=" + m.name
	if m.isLua() {
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
