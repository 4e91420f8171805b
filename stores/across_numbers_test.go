package stores_test

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestAcrossTellsAsOneStore decides zones in two stores and, in others, in one: the numbers of all results are the
// same, whether all admit or one denies.
func TestAcrossTellsAsOneStore(t *testing.T) {
	now := int64(storekit.Hour)
	r := storekit.Seeded(t)
	for _, alg := range []algorithms.Algorithm{&algorithms.GCRA{}, &algorithms.FixedWindow{}, &algorithms.SlidingWindow{}, &algorithms.SlidingLog{}} {
		check := func() *stores.Check {
			var all []*stores.Counter
			for _, name := range []string{"one", "two"} {
				c := kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: alg, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
				c.Table = memory.NewTable(c.Rules, 100)
				all = append(all, c)
			}
			return storekit.CheckOf(1, all...)
		}
		clock := func() int64 { return now }
		one, two := &memory.Store{Clock: clock}, &memory.Store{Clock: clock}
		single, across := check(), check()
		for range 100 {
			now += r.Int64N(storekit.Hour / 10)
			cost := [2]int64{1 + r.Int64N(3), 1 + r.Int64N(3)}
			for _, check := range []*stores.Check{single, across} {
				for i := range check.Zones {
					z := &check.Zones[i]
					check.Zones[i] = stores.ZoneCheck{Counter: z.Counter, Subject: z.Subject, Cost: cost[i], WantsMore: true}
				}
			}
			one.Decide(context.Background(), single)
			stores.Across(context.Background(), across, []stores.Store{one, two})
			for i := range single.Zones {
				want, got := &single.Zones[i], &across.Zones[i]
				w, g := want.Results[0], got.Results[0]
				if got.Charged != want.Charged || g.Remaining != w.Remaining || g.Reset != w.Reset || g.More != w.More {
					t.Fatalf("%T, zone %d, admitted %v: charged %v, remaining %d, reset %d, more %d; want %v, %d, %d, %d", alg, i, across.Admitted,
						got.Charged, g.Remaining, g.Reset, g.More, want.Charged, w.Remaining, w.Reset, w.More)
				}
			}
		}
	}
}
