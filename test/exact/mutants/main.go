//go:build unix

// Mutants breaks the product in one place at a time and checks that a test fails. A
// mutant that survives is a missing test.
//
//	go run ./mutants [-only regexp] [-workers n] [-o file]
//
// The work tree is not changed: go build's -overlay replaces files for one build of
// the tests that contains all mutants, inactive. It is an error if the text of a mutant
// does not occur exactly once or does not build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mutant is one change that breaks the product.
type mutant struct {
	name   string
	breaks string // the resulting bug, for the table
	in     string // the function, such as memory.Table.Reset; in Lua the file, relative to the root of the repository
	old    string // occurs exactly once in it; of Go, layout and comments do not matter
	new    string
	suites []suite // that may fail, fastest first

	// equivalent explains why no test can fail. Such a mutant must survive.
	equivalent string
}

// isLua reports whether the mutant changes the script that runs in Redis.
func (m *mutant) isLua() bool { return strings.HasSuffix(m.in, ".lua") }

// outcome is the result of a mutant.
type outcome struct {
	mutant
	killer string // the test that failed; empty: none
}

func main() {
	only := flag.String("only", "", "run only the mutants whose name matches this regular expression")
	workers := flag.Int("workers", 2, "how many mutants to try at a time")
	longest := flag.Duration("simulated", 0, "run the simulation instead, with each mutant that it has to find, for this time at most")
	out := flag.String("o", "", "write the table to this file, in which rows of other mutants stay; with -simulated ../../docs/internals/simulation.md")
	flag.Parse()
	if err := run(*only, *workers, *out, *longest); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, workers int, out string, longest time.Duration) error {
	root, err := repository()
	if err != nil {
		return err
	}
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// The tests run in their own process groups, which must be stopped, too.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l := &lab{ctx: ctx, root: root, dir: dir}
	if longest > 0 {
		rows, err := l.simulate(chosen, longest)
		if out == "" || rows == nil {
			return err
		}
		return errors.Join(err, writeFound(out, rows))
	}
	suites := suitesOf(chosen)
	if err := l.build(chosen, suites...); err != nil {
		return err
	}
	if err := l.healthy(suites); err != nil {
		return err
	}
	began := time.Now()
	outcomes := l.tryAll(chosen, workers)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	fmt.Fprintf(os.Stderr, "%d mutants in %v\n", len(chosen), time.Since(began).Round(time.Second))
	bad := 0
	for _, o := range outcomes {
		if !o.good() {
			bad++
		}
	}
	if err := write(out, outcomes); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d mutants have an unexpected outcome", bad)
	}
	return nil
}

// write updates the table of the last run.
func write(out string, outcomes []outcome) error {
	if out == "" {
		fmt.Print(report(outcomes, ""))
		return nil
	}
	last, err := os.ReadFile(out) //nolint:gosec // named on the command line
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(out, []byte(report(outcomes, string(last))), 0o644) //nolint:gosec // a document for everyone
}

// repository returns the root of the work tree.
func repository() (string, error) {
	mod, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/dianalimiter/diana").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w; run it in test/exact/", err)
	}
	return filepath.Clean(strings.TrimSpace(string(mod))), nil
}

// mutants returns all mutants.
func mutants() []mutant {
	return slices.Concat(
		arithmeticMutants,
		luaMutants,
		calendarMutants,
		scriptMutants,
		storeMutants,
		fallbackMutants,
		lostMutants,
		leaseMutants,
		blockMutants,
		permitMutants,
		processMutants,
		nodeMutants,
		ruleMutants,
		waitMutants,
		bodyMutants,
		keyMutants,
		limitMutants,
		adaptiveMutants,
	)
}

func choose(only string) ([]mutant, error) {
	want, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	var chosen []mutant
	seen := make(map[string]bool)
	for _, m := range mutants() {
		if seen[m.name] {
			return nil, fmt.Errorf("mutant %s: duplicate name", m.name)
		}
		seen[m.name] = true
		if want.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	return chosen, nil
}

// suitesOf returns the suites of some mutants, each once.
func suitesOf(chosen []mutant) (all []suite) {
	for _, m := range chosen {
		for _, s := range m.suites {
			if !slices.ContainsFunc(all, func(o suite) bool { return o.name == s.name }) {
				all = append(all, s)
			}
		}
	}
	return all
}

func (l *lab) tryAll(chosen []mutant, workers int) []outcome {
	outcomes := make([]outcome, len(chosen))
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				outcomes[i] = l.try(chosen[i])
				if l.ctx.Err() == nil { // otherwise the test was interrupted
					fmt.Fprintf(os.Stderr, "%s: %s\n", chosen[i].name, outcomes[i].verdict())
				}
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	wg.Wait()
	return outcomes
}
