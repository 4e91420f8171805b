package exact_test

import (
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
)

// undelaying are the algorithms that can be charged after the response.
var undelaying = map[string]algorithms.Algorithm{
	"gcra":                      &algorithms.GCRA{},
	"token_bucket":              &algorithms.TokenBucket{},
	"token_bucket with a step":  &algorithms.TokenBucket{Step: caddy.Duration(time.Second)},
	"leaky_bucket with nodelay": &algorithms.LeakyBucket{NoDelay: true},
	"fixed_window":              &algorithms.FixedWindow{},
	"fixed_window with align":   &algorithms.FixedWindow{Align: true},
	"sliding_window":            &algorithms.SlidingWindow{},
	"sliding_log":               &algorithms.SlidingLog{},
}

func compiled(t *testing.T, a algorithms.Algorithm, sp algorithms.Spec) algorithms.Rule {
	t.Helper()
	r, err := a.Compile(sp)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const paidAt = 1_800_000 * second

// owe charges the only rule of a key after the response.
func (k *key) owe(cost int64) {
	now := paidAt
	if g, ok := k.rules[0].(algorithms.Growing); ok {
		longer := make(algorithms.State, g.Need(k.states[0], now, cost))
		g.Move(longer, k.states[0])
		k.states[0] = longer
	}
	k.rules[0].Overdraw(k.states[0], now, cost)
}

// TestDebt charges far more than a rule's capacity: the debt is bounded, by what is exact for a meter
// and by one additional capacity for others, is not mistaken for a clock step, drains like any charge,
// and until then nothing remains.
func TestDebt(t *testing.T) {
	const limit, window, huge = 7, 3600 * second, 1 << 50
	for name, alg := range undelaying {
		t.Run(name, func(t *testing.T) {
			k := newKey(t, []algorithms.Rule{compiled(t, alg, algorithms.Spec{Limit: limit, Window: window, Cost: 1, Overdraws: true})})
			now, most := paidAt, 2*window
			switch {
			case k.rules[0].Words() == 4 && name != "sliding_window" && name != "sliding_log":
				most = 1 << 53 // a meter owes all
			case name == "sliding_log":
				for range 1000 {
					k.owe(100 * limit)
				}
				if n := len(k.states[0]) - 1; n > 16 {
					t.Errorf("a limit of %d and debts take %d timestamps, want 16", limit, n)
				}
				most = window
			}
			k.owe(huge)
			owed := slices.Clone(k.states[0])
			if k.owe(1); !slices.Equal(owed, k.states[0]) {
				t.Errorf("a maximal debt of %v grew to %v", owed, k.states[0])
			}
			v := k.peek(now, 1)[0]
			if v.Admit || v.Remaining != 0 || v.RetryAfter <= 0 || v.RetryAfter > most || v.ResetAfter > most {
				t.Errorf("in debt: verdict %+v, want a denial for at most %d", v, most)
			}
			if ok, _ := k.clone().decide(now+v.RetryAfter, 1); !ok {
				t.Errorf("denied after the retry of %d", v.RetryAfter)
			}
		})
	}
}

// TestDebtIsNotForgiven checks that a charge under a smaller limit keeps a debt from
// a larger one, even if it exceeds the smaller limit's maximum.
func TestDebtIsNotForgiven(t *testing.T) {
	const limit, window = 5, 3600 * second
	for name, alg := range undelaying {
		t.Run(name, func(t *testing.T) {
			large := algorithms.Spec{Limit: 4 * limit, Window: window, Cost: 1, Overdraws: true}
			small := algorithms.Spec{Limit: limit, Window: window, Cost: 1, Overdraws: true}
			larger := alg
			if _, ok := alg.(*algorithms.GCRA); ok { // a level counts under its limit, whatever the burst
				large.Limit, larger = limit, &algorithms.GCRA{Burst: 4 * limit}
			}
			k := newKey(t, []algorithms.Rule{compiled(t, larger, large)})
			k.owe(8 * limit)
			k.rules[0] = compiled(t, alg, small)
			_, before := k.rules[0].Numbers(k.states[0], paidAt)
			k.owe(1)
			if remaining, after := k.rules[0].Numbers(k.states[0], paidAt); remaining != 0 || after < before {
				t.Errorf("after one more charge %d remain and reset is %d, before %d", remaining, after, before)
			}
			if name == "sliding_window" && k.states[0][1] < 8*limit {
				t.Errorf("debt %d, want %d", k.states[0][1], 8*limit)
			}
		})
	}
}

// TestClockBackOneMicrosecond fills a meter and sets the clock back by one
// microsecond: that is within the clock's resolution and must not be repaired.
func TestClockBackOneMicrosecond(t *testing.T) {
	for _, name := range []string{"gcra", "token_bucket", "leaky_bucket with nodelay"} {
		k := newKey(t, []algorithms.Rule{compiled(t, undelaying[name], algorithms.Spec{Limit: 10, Window: 1000, Cost: 1})})
		if ok, _ := k.decide(5000, 10); !ok {
			t.Fatalf("%s: a whole burst is denied", name)
		}
		if v := k.peek(4999, 1)[0]; v.RetryAfter != 101 { // peek fails the test on a repair
			t.Errorf("%s: one microsecond earlier: verdict %+v", name, v)
		}
	}
}

// TestRescaleFarAhead rescales a level that a clock far ahead wrote in tiny units:
// the meter is full until it has drained, and no product overflows.
func TestRescaleFarAhead(t *testing.T) {
	const window = 1_000_003 // a prime
	r := compiled(t, &algorithms.GCRA{}, algorithms.Spec{Limit: 2, Window: window, Cost: 1})
	s := algorithms.State{5000 + 1<<32, 0, 1<<31 + 1}
	if remaining, reset := r.Numbers(s, 5000); remaining != 0 || reset != 1<<32 {
		t.Errorf("%d remain and reset is %d, want 0 and %d", remaining, reset, int64(1)<<32)
	}
	// The level is one unit of cost at window/(1<<31+1) microseconds before its end.
	if v := r.Judge(s, 5000, 1, 0); v.Retry != 1<<32 {
		t.Errorf("%+v, want a retry of %d", v, int64(1)<<32)
	}
}

// TestShares checks that rules divided among instances together admit no more than
// the whole rule, except that each admits at least one request, and that the numbers
// of each share are consistent.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Int64Range(1, 5).Draw(t, "cost")
		limit := cost + rapid.Int64Range(0, 100).Draw(t, "limit")
		burst := cost + rapid.Int64Range(0, 100).Draw(t, "burst")
		of := rapid.Int64Range(1e6, 40e6).Draw(t, "millionths")
		for name, alg := range map[string]algorithms.Algorithm{
			"gcra": &algorithms.GCRA{Burst: burst}, "fixed_window": &algorithms.FixedWindow{}, "sliding_log": &algorithms.SlidingLog{},
			"sliding_window": &algorithms.SlidingWindow{}, "leaky_bucket": &algorithms.LeakyBucket{Burst: burst},
		} {
			sp := algorithms.Spec{Limit: limit, Window: 3 * second, Cost: cost}
			whole, err := alg.Compile(sp)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			sp.ShareOf = of
			r, err := alg.Compile(sp)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			checkShare(t, name+": limit", r.Limit(), whole.Limit(), of, cost)
			checkShare(t, name+": capacity", r.Capacity(), whole.Capacity(), of, cost)
			k := newKey(t, []algorithms.Rule{r})
			longest := int64(0)
			if b, ok := alg.(*algorithms.LeakyBucket); ok {
				longest = b.MaxDelay(sp)
			}
			checkQueue(t, name, k, longest)
		}
	})
}

func checkShare(t *rapid.T, what string, got, whole, of, cost int64) {
	if got < cost || got > cost && got*of > whole*1e6 {
		t.Fatalf("%s: a share of %d millionths of %d is %d, with a cost of %d", what, of, whole, got, cost)
	}
}

// checkQueue takes all that remains in requests of cost 1, none of which may be
// delayed for longer than longest.
func checkQueue(t *rapid.T, name string, k *key, longest int64) {
	for left := k.peek(second, 1)[0].Remaining; ; left-- {
		ok, verdicts := k.decide(second, 1)
		if ok != (left > 0) {
			t.Fatalf("%s: admitted %v with %d left", name, ok, left)
		}
		if !ok {
			return
		}
		if d := verdicts[0].Delay; d > longest {
			t.Fatalf("%s: delayed by %d, want at most %d", name, d, longest)
		}
	}
}

// TestMetersOweAll charges meters many times their burst: nothing is admitted until all of it but a
// burst has drained.
func TestMetersOweAll(t *testing.T) {
	const limit, window, owed = 2000, 60 * second, 30_003
	for _, name := range []string{"gcra", "token_bucket", "leaky_bucket with nodelay"} {
		k := newKey(t, []algorithms.Rule{compiled(t, undelaying[name], algorithms.Spec{Limit: limit, Window: window, Cost: 1, Overdraws: true})})
		for range 3 {
			k.owe(owed / 3)
		}
		if v, want := k.peek(paidAt, limit)[0], int64(owed)*window/limit; v.Admit || v.RetryAfter < want || v.RetryAfter > want+second {
			t.Errorf("%s: %+v after a charge of %d, want a retry after %d", name, v, owed, want)
		}
	}
}
