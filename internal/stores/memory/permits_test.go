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
	if !decide(after).Charged || !decide(after).Charged || decide(after).Charged {
		t.Error("want two requests admitted under the new rules after the release of both permits")
	}
}
