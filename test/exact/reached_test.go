package exact_test

import (
	"testing"

	"github.com/dianalimiter/diana/test/exact/oracle"
)

// TestBoundIsReached runs, for each algorithm, a trace that reaches its bound, so that
// the bound is tight and the measurement can fail. A meter that refills continuously
// comes within the refill of one microsecond.
func TestBoundIsReached(t *testing.T) {
	for _, c := range []struct {
		name       string
		rule       oracle.Rule
		from       int64
		moves      []func(a *attack, size int64)
		reach, out int64 // arriving and, where they differ, leaving
	}{
		{
			"fixed_window",
			oracle.Rule{Algorithm: "fixed_window", Limit: 10, Window: 100},
			1005,
			[]func(*attack, int64){(*attack).straddle},
			19, 0,
		},
		{
			"fixed_window align",
			oracle.Rule{Algorithm: "fixed_window", Limit: 10, Window: 100, Align: true},
			1099,
			[]func(*attack, int64){(*attack).burst, (*attack).tick, (*attack).burst},
			20, 0,
		},
		{
			"calendar",
			oracle.Rule{Algorithm: "calendar", Limit: 10, Window: day, Period: "day", Zone: "UTC"},
			5*day - 1,
			[]func(*attack, int64){(*attack).burst, (*attack).tick, (*attack).burst},
			20, 0,
		},
		{
			"sliding_window",
			oracle.Rule{Algorithm: "sliding_window", Limit: 10, Window: 100},
			1005,
			[]func(*attack, int64){(*attack).burst, (*attack).drip},
			10, 0,
		},
		{
			"sliding_log",
			oracle.Rule{Algorithm: "sliding_log", Limit: 10, Window: 100},
			1005,
			[]func(*attack, int64){(*attack).burst, (*attack).drip},
			10, 0,
		},
		{
			"gcra",
			oracle.Rule{Algorithm: "gcra", Limit: 10, Window: 100, Burst: 7},
			1005,
			[]func(*attack, int64){(*attack).burst, (*attack).drip},
			16, 0,
		},
		{
			"token_bucket",
			oracle.Rule{Algorithm: "token_bucket", Limit: 10, Window: 100, Burst: 7},
			1005,
			[]func(*attack, int64){(*attack).burst, (*attack).drip},
			16, 0,
		},
		{
			"token_bucket step",
			oracle.Rule{Algorithm: "token_bucket", Limit: 10, Window: 100, Burst: 7, Step: 50},
			1049,
			[]func(*attack, int64){(*attack).burst, (*attack).drip},
			17, 0,
		},
		{
			"leaky_bucket nodelay",
			oracle.Rule{Algorithm: "leaky_bucket", Limit: 10, Window: 100, Burst: 7, NoDelay: true},
			1005,
			[]func(*attack, int64){(*attack).burst, (*attack).drip},
			16, 0,
		},
		{
			"leaky_bucket",
			oracle.Rule{Algorithm: "leaky_bucket", Limit: 10, Window: 100, Burst: 7},
			1005,
			[]func(*attack, int64){(*attack).drip, (*attack).drip},
			16, 10,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := watch(t, []oracle.Rule{c.rule})
			a := &attack{w, newTrace(c.from, w.rules, w.key.rules), new(int)}
			for _, move := range c.moves {
				move(a, 1)
			}
			if got := w.arrivals[0].most; got != c.reach {
				t.Errorf("%d arrived in one window, want %d%v", got, c.reach, a.trace)
			}
			if got := w.leavings[0].most; c.out > 0 && got != c.out {
				t.Errorf("%d left in one window, want %d%v", got, c.out, a.trace)
			}
		})
	}
}

// tick advances the time by one microsecond.
func (a *attack) tick(int64) { a.now++ }
