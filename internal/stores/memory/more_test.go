package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestMore checks that there is more left at the instant that a decision names, and not a
// microsecond earlier, and that no denial ends before.
func TestMore(t *testing.T) {
	r := storekit.Seeded(t)
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	for range storekit.Operations(t) / 20 {
		spec := storekit.RandomRule(r, true, false)
		if _, queue := spec.Alg.(*algorithms.LeakyBucket); queue {
			longer := spec
			longer.Spec.MaxWait = 1 + r.Int64N(2*spec.Spec.Window)
			if _, err := longer.Alg.Compile(longer.Spec); err == nil {
				spec = longer
			}
		}
		c := kit.NewTestCounter(t, "z", 0, false, nil, spec)
		for range 20 {
			if r.IntN(10) == 0 && spec.Spec.MaxWait == 0 {
				spec = spec.Changed(r)
				c = kit.NewTestCounter(t, "z", 0, false, c.Table, spec)
			}
			rule := c.Rules[0]
			check := storekit.CheckOfKey(c, 1)
			check.Zones[0].Cost, check.Zones[0].WantsMore = 1+r.Int64N(min(4, rule.Capacity())), true
			local.Decide(context.Background(), check)
			at, res := now, check.Zones[0].Results[0]
			if (res.More == 0) != (res.Reset == 0) || res.More > res.Reset || !res.Admit && res.Retry < res.More {
				t.Fatalf("%T %+v %+v: %+v", spec.Alg, spec.Alg, spec.Spec, res)
			}
			if res.More > 0 {
				before, after := remainingAt(local, c, &now, at+res.More-1), remainingAt(local, c, &now, at+res.More)
				if before > res.Remaining || after <= res.Remaining {
					t.Fatalf("%T %+v %+v: %+v, but %d are left a microsecond before, and %d then", spec.Alg, spec.Alg, spec.Spec, res, before, after)
				}
			}
			now = at + r.Int64N(2*rule.Window()/rule.Limit()+2)
		}
		now += 100 * storekit.Hour
	}
}

// remainingAt returns what is left of the key at an instant.
func remainingAt(local *Store, c *stores.Counter, now *int64, at int64) int64 {
	*now = at
	check := storekit.CheckOfKey(c, 1)
	check.Peek = true
	local.Decide(context.Background(), check)
	return check.Zones[0].Results[0].Remaining
}

// TestMoreWhileHeld checks that more may be left at any time while requests hold cost.
func TestMoreWhileHeld(t *testing.T) {
	c := kit.TenPerHour(t, "z", true)
	local := &Store{Clock: func() int64 { return storekit.Hour }}
	decide := func(c *stores.Counter) (*stores.Check, stores.Result) {
		check := storekit.CheckOfKey(c, 1)
		check.Zones[0].WantsMore = true
		local.Decide(context.Background(), check)
		return check, check.Zones[0].Results[0]
	}
	check, res := decide(c)
	if res.Remaining != 9 || res.More != 1_000_000 {
		t.Errorf("%+v, want 9 left and more in a second", res)
	}
	local.Finish(context.Background(), &check.Zones[0], 1)
	peek := storekit.CheckOfKey(c, 1)
	peek.Peek, peek.Zones[0].WantsMore = true, true
	local.Decide(context.Background(), peek)
	if res := peek.Zones[0].Results[0]; res.Remaining != 9 || res.More != storekit.Hour {
		t.Errorf("%+v, want 9 left and more in an hour", res)
	}
}
