//go:build unix

// Mutants breaks the product in one place at a time and sees that a test
// notices. A mutant that survives is a test that is missing.
//
//	go run ./mutants [-only regexp] [-workers n] [-o file]
//
// The work tree is never touched: a changed Go file is laid over it for one
// build, a changed Lua file is read by one build for all of them. A mutant whose text is no longer there, or there twice, is an error.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// mutant is one thing that is broken.
type mutant struct {
	name   string
	breaks string // what is wrong with it, for a reader
	file   string // relative to the root of the repository
	old    string // occurs exactly once in the file
	new    string
	suites []suite // that could notice, the quickest first

	// equivalent says why no test can notice; such a mutant has to survive.
	equivalent string
}

// outcome is what became of a mutant.
type outcome struct {
	mutant
	killer string // the test that noticed; empty: none
	err    error  // it does not apply or does not build
}

func main() {
	only := flag.String("only", "", "run only the mutants whose name matches this regular expression")
	workers := flag.Int("workers", 2, "how many mutants to try at a time")
	out := flag.String("o", "", "write the table to this file instead of the output")
	flag.Parse()
	if err := run(*only, *workers, *out); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, workers int, out string) error {
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
	l := newLab(root, dir)
	for _, m := range chosen { // before minutes are spent on the others
		if _, err := l.apply(m); err != nil {
			return err
		}
	}
	if err := l.healthy(); err != nil {
		return err
	}
	began := time.Now()
	outcomes := l.tryAll(chosen, workers)
	fmt.Fprintf(os.Stderr, "%d mutants in %v\n", len(chosen), time.Since(began).Round(time.Second))
	table, bad := report(outcomes)
	if out == "" {
		fmt.Print(table)
	} else if err := os.WriteFile(out, []byte(table), 0o644); err != nil { //nolint:gosec // a document for everyone
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d mutants are not as they should be", bad)
	}
	return nil
}

// repository is the root of the work tree, from anywhere within it.
func repository() (string, error) {
	mod, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/dianalimiter/diana").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w; want to be run in exact/", err)
	}
	return filepath.Clean(strings.TrimSpace(string(mod))), nil
}

func choose(only string) ([]mutant, error) {
	want, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	var chosen []mutant
	seen := make(map[string]bool)
	for _, list := range [][]mutant{arithmeticMutants, storeMutants, judgeMutants, scriptMutants} {
		for _, m := range list {
			if seen[m.name] {
				return nil, fmt.Errorf("mutant %s: there are two of this name", m.name)
			}
			seen[m.name] = true
			if want.MatchString(m.name) {
				chosen = append(chosen, m)
			}
		}
	}
	return chosen, nil
}

func (l *lab) tryAll(chosen []mutant, workers int) []outcome {
	outcomes := make([]outcome, len(chosen))
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range next {
				outcomes[i] = l.try(chosen[i])
				fmt.Fprintf(os.Stderr, "%s: %s\n", chosen[i].name, outcomes[i].verdict())
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
