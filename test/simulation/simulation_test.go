package simulation

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// TestOne runs the plan in the environment, or a short one.
func TestOne(t *testing.T) {
	p := &Plan{Seed: 1}
	text := os.Getenv(planVariable)
	if text != "" {
		if err := json.Unmarshal([]byte(text), p); err != nil {
			t.Fatal(err)
		}
	}
	r := Run(t, p)
	if text == "" {
		for _, v := range r.Violations {
			t.Errorf("%s: %s", v.Promise, v.What)
		}
		return
	}
	if err := os.WriteFile(os.Getenv(resultVariable), encode(r), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The plans of every test run.
const firstSeed, seeds = 1, 20

// TestSimulation runs some plans that are always the same, or, for as long as DIANA_SIMULATE
// says, those of the seeds from DIANA_SEED on or from a new one. It shrinks the first failure
// and prints its timeline.
func TestSimulation(t *testing.T) {
	seed := uint64(firstSeed)
	more := func(s uint64) bool { return s < firstSeed+seeds }
	if long := duration(t, "DIANA_SIMULATE", 0); long > 0 {
		until := time.Now().Add(long)
		seed, more = uint64(time.Now().UnixNano()), func(uint64) bool { return time.Now().Before(until) }
		if s := os.Getenv("DIANA_SEED"); s != "" {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			seed = n
		}
	}
	all := os.Getenv("DIANA_SIMULATE_ALL") != "" // do not stop at the first failure
	t.Logf("DIANA_SEED=%d", seed)
	sum, err := Search(os.Args[0], seed, runtime.NumCPU(), more, func(r *Result) bool {
		if all && len(r.Violations) > 0 {
			fmt.Printf("seed %d: %s: %s\n", r.Plan.Seed, r.Violations[0].Promise, r.Violations[0].What)
			r.Print(t.Output())
		}
		return !all && len(r.Violations) > 0
	})
	if err != nil {
		t.Fatal(err)
	}
	sum.Print(t.Output())
	if len(sum.Failures) == 0 {
		for _, promise := range []string{"bound", "charges", "modes", "places"} {
			if sum.Checked[promise] == 0 {
				t.Errorf("nothing was checked of %q: want something in each run", promise)
			}
		}
		return
	}
	first := sum.Failures[0]
	if all {
		t.Fail()
		return
	}
	t.Errorf("seed %d: %s: %s", first.Plan.Seed, first.Violations[0].Promise, first.Violations[0].What)
	Shrink(os.Args[0], first, time.Now().Add(duration(t, "DIANA_SHRINK", 2*time.Minute))).Print(t.Output())
}

// TestPrint prints the run of the plan in the environment as a timeline.
func TestPrint(t *testing.T) {
	p := &Plan{Seed: 1, Quiet: true}
	if text := os.Getenv(planVariable); text != "" {
		p = new(Plan)
		if err := json.Unmarshal([]byte(text), p); err != nil {
			t.Fatal(err)
		}
	}
	r, err := p.Start(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	r.Print(t.Output())
}

// duration returns the duration in an environment variable.
func duration(t *testing.T, name string, otherwise time.Duration) time.Duration {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRepeats runs a seed several times and prints how many of the runs had the same timeline
// to the nanosecond, and the same requests with the same answers. It fails only if no two runs
// have the same plan.
func TestRepeats(t *testing.T) {
	n, seed := 2, uint64(7)
	if s := os.Getenv("DIANA_REPEATS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	hashes, answers := make(map[string]int), make(map[string]int)
	requests := make(map[int]int)
	for range n {
		r, err := (&Plan{Seed: seed, Quiet: os.Getenv("DIANA_QUIET") != ""}).Start(os.Args[0])
		if err != nil {
			t.Fatal(err)
		}
		hashes[r.Hash]++
		answers[r.Answers]++
		requests[r.Requests]++
	}
	t.Logf("%d runs of seed %d: %d timelines, %d lists of requests and answers, requests %v", n, seed, len(hashes), len(answers), requests)
	if len(requests) == n && n > 2 {
		t.Error("no two runs had the same number of requests")
	}
}
