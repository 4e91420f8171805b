package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A run is a process of its own: sync.Pool and the variables of packages outlive a bubble,
// and a run that deadlocks ends its process. The process is this test binary again.

const (
	planVariable   = "DIANA_SIMULATION_PLAN"   // a Plan as JSON: run it
	resultVariable = "DIANA_SIMULATION_RESULT" // the file for its Result
)

// longestRun is the longest that a run takes on a busy machine.
const longestRun = 4 * time.Minute

// Start runs a plan in a process of its own, and returns its result. A run that does not
// end by itself violates a promise, too.
func (p *Plan) Start(binary string) (*Result, error) {
	dir, err := os.MkdirTemp("", "simulation")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "result.json")
	c := exec.Command(binary, "-test.run=^TestOne$", "-test.timeout="+longestRun.String()) //nolint:gosec // this binary
	c.Env = append(os.Environ(), planVariable+"="+string(encode(p)), resultVariable+"="+file, "GOMAXPROCS=1")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	c.WaitDelay = time.Second
	failed := c.Run()
	r := new(Result)
	if text, err := os.ReadFile(file); err == nil { //nolint:gosec // ours
		return r, json.Unmarshal(text, r)
	}
	if failed == nil {
		return nil, errors.New("a run left no result: " + tail(out.String()))
	}
	r.Plan = *p
	r.Violations = []Violation{{Promise: "a run ends", What: firstOf(out.String()), Lines: strings.Split(tail(out.String())+unfinished(out.String()), "\n")}}
	return r, nil
}

// firstOf returns the line that says why a run did not end.
func firstOf(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "DATA RACE") {
			return strings.TrimSpace(line)
		}
	}
	return "it failed"
}

// unfinished returns the goroutines of a trace that carry out a step of a plan, which may have kept a run from ending.
func unfinished(out string) string {
	var list strings.Builder
	for one := range strings.SplitSeq(out, "\n\n") {
		if strings.Contains(one, "simulation.(*world).step") || strings.Contains(one, "simulation.(*world).send") {
			list.WriteString("\n\n" + one)
		}
	}
	return list.String()
}

func tail(out string) string {
	if len(out) > 6000 {
		out = out[:4000] + "\n...\n" + out[len(out)-2000:]
	}
	return out
}

// Sum is what many runs found.
type Sum struct {
	Runs, Requests, Events      int            // numbers of runs, requests and events other than requests
	Stuck                       map[string]int // runs that were cut off, by deployment
	Deployments, Ways           map[string]int // runs by deployment, and by how far Redis is
	Simulated, Took             time.Duration  // simulated and real time
	Faults, Checked, Pairs, Now map[string]int // as in Result, of all runs; Now is Sometimes
	Failures                    []*Result      // the runs that violated a promise
}

// Add adds a result.
func (s *Sum) Add(r *Result) {
	if s.Faults == nil {
		s.Faults, s.Checked, s.Pairs, s.Now = make(map[string]int), make(map[string]int), make(map[string]int), make(map[string]int)
		s.Deployments, s.Ways, s.Stuck = make(map[string]int), make(map[string]int), make(map[string]int)
	}
	s.Runs++
	r.Plan.draw()
	at := string(r.Plan.setup.topology)
	s.Deployments[at]++
	s.Ways[r.Plan.setup.way.String()]++
	if r.Stuck {
		s.Stuck[at]++
	}
	s.Requests += r.Requests
	s.Events += r.Events
	s.Simulated += r.Simulated
	for to, from := range map[*map[string]int]map[string]int{&s.Faults: r.Faults, &s.Checked: r.Checked, &s.Pairs: r.Pairs, &s.Now: r.Sometimes} {
		for k, n := range from {
			(*to)[k] += n
		}
	}
	if len(r.Violations) > 0 {
		s.Failures = append(s.Failures, r)
	}
}

// Injected returns the number of faults.
func (s *Sum) Injected() (n int) {
	for what, count := range s.Faults {
		if !strings.HasSuffix(what, " ends") {
			n += count
		}
	}
	return n
}

// Search runs plans from a seed on, several at a time, as long as more returns true of the
// next seed, or until stop returns true of a result.
func Search(binary string, seed uint64, parallel int, more func(seed uint64) bool, stop func(r *Result) bool) (sum Sum, err error) {
	began := time.Now()
	results, failures := make(chan *Result), make(chan error, parallel)
	next := make(chan uint64)
	done := make(chan struct{})
	go func() {
		defer close(next)
		for s := seed; more(s); s++ {
			select {
			case next <- s:
			case <-done:
				return
			}
		}
	}()
	for range parallel {
		go func() {
			for s := range next {
				r, err := (&Plan{Seed: s}).Start(binary)
				if err != nil {
					failures <- err
					return
				}
				results <- r
			}
			results <- nil
		}()
	}
	stopped := false
	for running := parallel; running > 0; {
		select {
		case err := <-failures:
			return sum, err
		case r := <-results:
			if r == nil {
				running--
				continue
			}
			sum.Add(r)
			if !stopped && stop(r) {
				stopped = true
				close(done)
			}
		}
	}
	sum.Took = time.Since(began)
	return sum, nil
}

// Shrink leaves out of a plan what its first violation does not need.
func Shrink(binary string, r *Result, until time.Time) *Result {
	p := r.Plan
	p.draw()
	promise := r.Violations[0].Promise
	isNear := p.Near
	try := func(without []int, instances int) bool {
		if time.Now().After(until) {
			return false
		}
		q := Plan{Seed: p.Seed, Without: without, Instances: instances, Near: isNear}
		one, err := q.Start(binary)
		if err != nil || len(one.Violations) == 0 || one.Violations[0].Promise != promise {
			return false
		}
		r = one
		return true
	}
	kept, without, instances := p.numbers(), []int(nil), p.Instances
	for size := (len(kept) + 1) / 2; size >= 1; size /= 2 {
		for from := 0; from < len(kept); {
			some := kept[from:min(from+size, len(kept))]
			if try(slices.Concat(without, some), instances) {
				without = slices.Concat(without, some)
				kept = slices.Concat(kept[:from], kept[min(from+size, len(kept)):])
				continue
			}
			from += size
		}
	}
	for n := 1; n < instances; n++ {
		if try(without, n) {
			instances = n
			break
		}
	}
	isNear = true
	try(without, instances)
	return r
}

// Print prints a failure as a timeline.
func (r *Result) Print(out io.Writer) {
	p := r.Plan
	p.draw()
	fmt.Fprintf(out, "seed %d, %s, %v, %d instances, without %v; what is left:\n", p.Seed, p.setup.topology, p.setup.way, p.Instances, p.Without)
	for i := range p.steps {
		fmt.Fprintf(out, "  %12.6f %s\n", p.steps[i].at.Seconds(), &p.steps[i])
	}
	used := make(map[int]bool)
	for i := range p.steps {
		used[p.steps[i].site] = used[p.steps[i].site] || p.steps[i].client
	}
	for i := range p.setup.sites {
		if one := &p.setup.sites[i]; used[i] {
			fmt.Fprintf(out, "  site %d %s: %s\n", i, one.Name, encode(rulesJSON(slices.Concat(one.Rules, one.Listed))))
		}
	}
	for _, v := range r.Violations {
		fmt.Fprintf(out, "violated: %s: %s\n", v.Promise, v.What)
	}
	if len(r.Violations) > 0 {
		for _, l := range r.Violations[0].Lines {
			fmt.Fprintln(out, strings.TrimRight(l, "\n"))
		}
	}
}

// Print prints what was done.
func (s *Sum) Print(out io.Writer) {
	minutes := s.Took.Minutes()
	fmt.Fprintf(out, "%d seeds, %v simulated in %v: %.1f hours a minute; %d requests, %d faults (%.0f a minute), %d reloads, ends and starts\n",
		s.Runs, s.Simulated.Round(time.Second), s.Took.Round(time.Second), s.Simulated.Hours()/minutes, s.Requests, s.Injected(), float64(s.Injected())/minutes, s.Events)
	fmt.Fprintf(out, "faults: %s\n", table(s.Faults))
	fmt.Fprintf(out, "checked: %s\n", table(s.Checked))
	fmt.Fprintf(out, "sometimes: %s\n", table(s.Now))
	s.printPairs(out)
	fmt.Fprintf(out, "Redis: %s\n", table(s.Ways))
	fmt.Fprintf(out, "deployments: %s; violations: %d; runs cut off: %s\n", table(s.Deployments), len(s.Failures), cmp.Or(table(s.Stuck), "none"))
}

func table(m map[string]int) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !strings.HasSuffix(k, " ends") {
			list = append(list, fmt.Sprintf("%s %d", k, m[k]))
		}
	}
	return strings.Join(list, ", ")
}

// printPairs prints how often each fault or event met what was under way.
func (s *Sum) printPairs(out io.Writer) {
	fmt.Fprintf(out, "| | %s |\n|---%s|\n", strings.Join(underWay, " | "), strings.Repeat("|---", len(underWay)))
	for _, what := range slices.Concat(faultNames, eventNames, []string{"start"}) {
		fmt.Fprintf(out, "| %s |", what)
		for _, other := range underWay {
			fmt.Fprintf(out, " %d |", s.Pairs[what+" | "+other])
		}
		fmt.Fprintln(out)
	}
	for _, state := range states {
		if s.Now[state] == 0 {
			fmt.Fprintf(out, "never: %s\n", state)
		}
	}
}
