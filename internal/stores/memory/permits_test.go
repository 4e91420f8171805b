package memory

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestPermitsOutliveRules changes the window of a rule while requests hold permits.
// They count for the new rules, which have another table, and are released there.
func TestPermitsOutliveRules(t *testing.T) {
	counter := func(window int64) *stores.Counter {
		return kit.NewTestCounter(t, "z", 2, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: window, Cost: 1}})
	}
	local, before, after := &Store{Clock: func() int64 { return storekit.Hour }}, counter(storekit.Hour), counter(2*storekit.Hour)
	decide := func(c *stores.Counter) *stores.ZoneCheck {
		check := storekit.CheckOf(1, c)
		local.Decide(context.Background(), check)
		return &check.Zones[0]
	}
	first, second := decide(before), decide(before)
	if z := decide(after); z.Charged || !z.Full {
		t.Error("a third request was admitted under the new rules")
	}
	local.Finish(context.Background(), first, 0)
	local.Finish(context.Background(), second, 0)
	for i, want := range []bool{true, true, false} {
		if decide(after).Charged != want {
			t.Errorf("request %d under the new rules, after the release of both permits: want charged %v", i, want)
		}
	}
}

// TestReservedCostCounts reserves the cost of a request for the sake of another store, in
// a zone that charges at once. It counts for others until it is released.
func TestReservedCostCounts(t *testing.T) {
	local := &Store{Clock: func() int64 { return storekit.Hour }}
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 2, Window: storekit.Hour, Cost: 1}})
	reserved := storekit.CheckOf(2, c)
	reserved.Zones[0].Reserve = true
	local.Decide(context.Background(), reserved)
	for _, want := range []bool{false, true} {
		check := storekit.CheckOf(1, c)
		if local.Decide(context.Background(), check); check.Admitted != want {
			t.Errorf("admitted %v, want %v", check.Admitted, want)
		}
		local.Finish(context.Background(), &reserved.Zones[0], 0)
	}
	if n := TableOf(c).held.Load(); n != 0 {
		t.Errorf("a cost of %d is held", n)
	}
}

// TestPermitsBesideOtherKeys checks a zone with permits beside one without, each under keys of
// its own, from many goroutines: what requests hold is read and written under its lock only.
func TestPermitsBesideOtherKeys(t *testing.T) {
	local := &Store{Clock: func() int64 { return storekit.Hour }}
	rule := storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1_000_000, Window: storekit.Hour, Cost: 1}}
	permits := kit.NewTestCounter(t, "permits", 2, false, nil, rule)
	holding := kit.NewTestCounter(t, "holding", 0, true, nil, rule)
	plain := kit.NewTestCounter(t, "plain", 0, false, nil, rule)
	var done sync.WaitGroup
	for g := range 4 {
		done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			zone := func(c *stores.Counter) stores.ZoneCheck {
				return stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 1 + r.Uint64N(200)}}, Cost: 1}
			}
			for range 5000 {
				checks := []*stores.Check{
					{Zones: []stores.ZoneCheck{zone(permits), zone(plain)}},
					{Zones: []stores.ZoneCheck{zone(plain), zone(holding)}},
					{Zones: []stores.ZoneCheck{zone(holding)}},
				}
				for _, check := range checks {
					local.Decide(context.Background(), check)
				}
				for _, check := range checks {
					for i := range check.Zones {
						local.Finish(context.Background(), &check.Zones[i], 0)
					}
				}
			}
		})
	}
	done.Wait()
	for i := range local.Permits.shards {
		if held := &local.Permits.shards[i]; len(held.held)+len(held.others) != 0 {
			t.Errorf("%v and %v are held after all permits were released", held.held, held.others)
		}
	}
}
