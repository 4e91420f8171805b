// Package chaos injects faults into what Diana depends on, under load, with three
// real Caddy instances and a real Redis, and checks that clients saw what is
// promised.
package chaos

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// full selects all rows at their full length, rather than the quick ones that are
// part of every test run.
var full = os.Getenv("DIANA_CHAOS") == "full"

func TestMain(m *testing.M) {
	code := harness.Run(m, func(dir string) error {
		return harness.BuildHere(dir, strings.Fields(os.Getenv("DIANA_CHAOS_BUILD"))...)
	})
	results.print()
	os.Exit(code)
}

// row is one fault, with its promise and the function that checks it.
type row struct {
	name, fault, target string
	quick               bool // part of every test run
	run                 func(t *testing.T, r *result)
	several             func(t *testing.T) // instead of run: runs several rows
}

// result collects the measurements of a row, in order.
type result struct {
	row
	parts []string
	ok    bool
}

func (r *result) report(format string, args ...any) {
	r.parts = append(r.parts, fmt.Sprintf(format, args...))
}

// late reports a time beyond its target. It fails a full run. Other runs, which may
// share the machine with other work, only log it.
func (r *result) late(t *testing.T, format string, args ...any) {
	t.Helper()
	if full {
		t.Errorf(format, args...)
		return
	}
	r.report("LATE: "+format, args...)
}

type table []*result

var results table

func (t table) print() {
	if len(t) == 0 {
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "\n| fault\t| target\t| result\t| \t|")
	fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|")
	for _, r := range t {
		verdict := "ok"
		if !r.ok {
			verdict = "FAIL"
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s\t|\n", r.fault, r.target, strings.Join(r.parts, ", "), verdict)
	}
	_ = w.Flush()
}

// TestChaos runs the rows sequentially, so that none affects another's timing.
func TestChaos(t *testing.T) {
	for _, r := range rows() {
		if !full && !r.quick {
			continue
		}
		if r.several != nil {
			t.Run(r.name, r.several)
		} else {
			runRow(t, r)
		}
	}
}

func runRow(t *testing.T, r row) {
	t.Run(r.name, func(t *testing.T) {
		out := &result{row: r}
		results = append(results, out)
		defer func() {
			out.ok = !t.Failed()
			t.Logf("%s: %s", r.fault, strings.Join(out.parts, ", "))
		}()
		r.run(t, out)
	})
}
