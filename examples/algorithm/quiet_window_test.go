package algorithm

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/algotest"
)

// TestAlgorithm tests the arithmetic, the Lua, decisions in Redis, and faults.
func TestAlgorithm(t *testing.T) {
	algotest.Run(t, algotest.Config{
		Algorithm: new(QuietWindow),
		Bound:     func(sp algorithms.Spec) int64 { return sp.Limit },
	})
}

// TestServes runs the algorithm in a real Caddy.
func TestServes(t *testing.T) {
	algotest.Serve(t, "3/2s quiet_window", `
		GET / X-Id=a => 200*3 429 retry=2
		GET / X-Id=b => 200
		GET / X-Id=a => until 200`)
}

// TestTimeline specifies the algorithm as a timeline.
func TestTimeline(t *testing.T) {
	r, err := new(QuietWindow).Compile(algorithms.Spec{Limit: 2, Window: 100, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := make(algorithms.State, r.Words())
	for _, c := range []struct {
		now, cost, held         int64
		want                    algorithms.Verdict
		remaining, reset, steps int64
	}{
		{now: 1000, cost: 1, want: algorithms.Verdict{Admit: true}, remaining: 1, reset: 100},
		{now: 1090, cost: 2, want: algorithms.Verdict{Retry: 10}, remaining: 1, reset: 10},
		{now: 1090, cost: 1, held: 1, want: algorithms.Verdict{Held: true}, remaining: 1, reset: 10},
		{now: 1090, cost: 1, want: algorithms.Verdict{Admit: true}, remaining: 0, reset: 100},
		{now: 1091, cost: 3, want: algorithms.Verdict{Retry: algorithms.Never}, remaining: 0, reset: 99},
		{now: 1189, cost: 1, want: algorithms.Verdict{Retry: 1}, remaining: 0, reset: 1},
		{now: 1190, cost: 2, want: algorithms.Verdict{Admit: true}, remaining: 0, reset: 100},
		{now: 500, cost: 1, want: algorithms.Verdict{Retry: 100}, remaining: 0, reset: 100, steps: 1}, // the clock was set back
		{now: 600, cost: 1, want: algorithms.Verdict{Admit: true}, remaining: 1, reset: 100},
	} {
		if stepped := r.Repair(s, c.now); stepped != (c.steps > 0) {
			t.Errorf("%d: repaired %v", c.now, stepped)
		}
		got := r.Judge(s, c.now, c.cost, c.held)
		if got.Admit {
			r.Charge(s, c.now, c.cost, 0)
		}
		remaining, reset := r.Numbers(s, c.now)
		if got != c.want || remaining != c.remaining || reset != c.reset {
			t.Errorf("%d: %+v remaining %d reset %d, want %+v", c.now, got, remaining, reset, c)
		}
	}
}
