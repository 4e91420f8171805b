package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// silentCounter returns a counter of 10 per hour whose requests hold their costs.
func silentCounter(t *testing.T, name string, alg algorithms.Algorithm) *stores.Counter {
	t.Helper()
	return kit.NewTestCounter(t, name, 0, true, nil, storekit.RuleSpec{Alg: alg, Spec: algorithms.Spec{Limit: 10, Window: 100 * storekit.Hour, Cost: 1, Overdraws: true}})
}

// left returns what is left of a key for an instance at an instant, which holds nothing.
func (s *virtualStore) left(seconds float64, c *stores.Counter) int64 {
	s.set(seconds)
	check := storekit.CheckOfKey(c, 1)
	check.Peek = true
	s.Decide(context.Background(), check)
	return check.Zones[0].Results[0].Remaining
}

// TestKilledHolderIsCharged kills an instance whose requests hold a cost. The cost is never free: it is
// held until another instance has called twice for the key, half a minute after the holder's entry has
// lapsed and half a minute later, whenever that is and whatever the verdict; then it is charged, once.
func TestKilledHolderIsCharged(t *testing.T) {
	for name, alg := range map[string]algorithms.Algorithm{
		"fixed_window": &algorithms.FixedWindow{}, "sliding_window": &algorithms.SlidingWindow{}, "sliding_log": &algorithms.SlidingLog{},
		"gcra": &algorithms.GCRA{}, "token_bucket": &algorithms.TokenBucket{}, "leaky_bucket": &algorithms.LeakyBucket{NoDelay: true},
	} {
		t.Run(name, func(t *testing.T) {
			for what, calls := range map[string][]float64{"at once": {10, 29, 30, 59, 60, 61, 100}, "late": {3 * 3600, 3*3600 + 29, 3*3600 + 31, 5 * 3600}} {
				one, two := twoInstances(t)
				c := silentCounter(t, "killed "+what, alg)
				one.at(0, c, 3)
				one.at(0, c, 4)
				one.crash()
				for _, at := range calls {
					denied := two.at(at, c, 5) // more than is left
					if res := denied.Results[0]; denied.Charged || res.Remaining != 3 {
						t.Errorf("%s, at %v: %+v, want a denial with 3 left", what, at, res)
					}
				}
				if res := two.at(calls[len(calls)-1], c, 5).Results[0]; res.Held || res.Retry < 3600e6 {
					t.Errorf("%s: %+v, want a denial by what was charged", what, res.Verdict)
				}
			}
		})
	}
}

// TestSilentHolderComesBack cuts an instance off and back. Before others have charged what its
// request held, it is charged what the response says; afterwards, only what is more than they have
// charged.
func TestSilentHolderComesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		others  []float64 // when another instance asks
		back    float64
		charges []int64 // of requests of 3, 3, ...
		used    int64   // in the end
		renewed bool    // before it is cut off
	}{
		"before it has lapsed":             {[]float64{20}, 25, []int64{5, 0}, 5, false},
		"before it is charged":             {[]float64{31, 60}, 60.5, []int64{5, 0}, 5, false},
		"nobody has asked":                 {nil, 500, []int64{5, 1}, 6, false},
		"one has asked, long ago":          {[]float64{31}, 500, []int64{5, 1}, 6, false},
		"charged, and more used":           {[]float64{31, 62}, 70, []int64{5, 3}, 8, false},
		"charged, and less used":           {[]float64{31, 62}, 70, []int64{1, 1}, 6, false},
		"charged, and one has used less":   {[]float64{31, 62}, 70, []int64{0, 8}, 8, false},
		"charged, and used as it was held": {[]float64{31, 62}, 600, []int64{3, 3}, 6, false},
		"renewed, charged, and more used":  {[]float64{31, 62}, 70, []int64{5, 3}, 8, true},
	} {
		one, two := twoInstances(t)
		c := silentCounter(t, "back", &algorithms.FixedWindow{})
		requests := []*stores.ZoneCheck{one.at(0, c, 3), one.at(0, c, 3)}
		if tc.renewed {
			one.set(0.5)
			one.isForgotten()
			one.renewPermits()
		}
		for _, at := range tc.others {
			two.left(at, c)
		}
		one.set(tc.back)
		one.renewPermits()
		for i, charge := range tc.charges {
			one.Finish(context.Background(), requests[i], charge)
		}
		one.renewPermits()
		if left := two.left(tc.back+1, c); left != 10-tc.used {
			t.Errorf("%s: %d left, want %d", name, left, 10-tc.used)
		}
		if left := two.left(tc.back+200, c); left != 10-tc.used {
			t.Errorf("%s: %d left later, want %d", name, left, 10-tc.used)
		}
	}
}

// TestOutageChargesNobodyTwice cuts all instances off for two minutes. They come back one after the other,
// and what their requests hold is charged by nobody else.
func TestOutageChargesNobodyTwice(t *testing.T) {
	one, two := twoInstances(t)
	c := silentCounter(t, "outage", &algorithms.FixedWindow{})
	first, second := one.at(0, c, 3), two.at(0, c, 3)
	one.set(120)
	one.renewPermits()
	two.set(125)
	two.renewPermits()
	one.Finish(context.Background(), first, 4)
	two.Finish(context.Background(), second, 1)
	for _, at := range []float64{126, 160, 200} {
		if left := one.left(at, c); left != 5 {
			t.Errorf("%d left at %v, want 5", left, at)
		}
	}
}

// TestGivenBackIsNotPrepaid says that a request of an instance has ended, without a reply, before the
// instance is cut off: Redis has heard it or not. What is charged afterwards may not be paid with what
// nobody may have charged.
func TestGivenBackIsNotPrepaid(t *testing.T) {
	rec := &record{cost: 3}
	rec.leaves(1, 0)
	rec.arrived(rec.last, true)
	rec.isStored(rec.last)
	rec.cost = 0
	rec.leaves(2, 10)
	rec.arrived(rec.last, true)
	if lost := rec.isMissing(2 * lapse.Microseconds()); lost || rec.unpaid(2) != 2 {
		t.Errorf("lost %v, prepaid %d, want neither", lost, rec.prepaid)
	}
}

// TestLostIsNotPrepaid has Redis lose its memory while a request holds a cost: the response is charged
// in full.
func TestLostIsNotPrepaid(t *testing.T) {
	one, two := twoInstances(t)
	c := silentCounter(t, "lost", &algorithms.FixedWindow{})
	request := one.at(0, c, 3)
	one.v.flush(t)
	one.set(11)
	one.renewPermits()
	one.Finish(context.Background(), request, 4)
	if left := two.left(12, c); left != 6 {
		t.Errorf("%d left, want 6", left)
	}
}
