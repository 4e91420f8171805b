package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestPermitsOutliveRules changes the window of a rule while requests hold permits.
// They count for the new rules, which have another table, and are released there.
func TestPermitsOutliveRules(t *testing.T) {
	counter := func(window int64) *stores.Counter {
		return storestest.NewTestCounter(t, "z", 2, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: window, Cost: 1}})
	}
	local, before, after := &Store{Clock: func() int64 { return storestest.Hour }}, counter(storestest.Hour), counter(2*storestest.Hour)
	decide := func(c *stores.Counter) *stores.ZoneCheck {
		check := storestest.CheckOf(1, c)
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
	local := &Store{Clock: func() int64 { return storestest.Hour }}
	c := storestest.NewTestCounter(t, "z", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 2, Window: storestest.Hour, Cost: 1}})
	reserved := storestest.CheckOf(2, c)
	reserved.Zones[0].Reserve = true
	local.Decide(context.Background(), reserved)
	for _, want := range []bool{false, true} {
		check := storestest.CheckOf(1, c)
		if local.Decide(context.Background(), check); check.Admitted != want {
			t.Errorf("admitted %v, want %v", check.Admitted, want)
		}
		local.Finish(context.Background(), &reserved.Zones[0], 0)
	}
	if n := TableOf(c).reserved.Load(); n != 0 {
		t.Errorf("a cost of %d is reserved", n)
	}
}
