package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestHeldCostKeepsTheBound holds the costs of many requests at a time and charges
// some of them after the response, as count_status does. In any window, by the times
// of the responses, the charges keep the bound.
func TestHeldCostKeepsTheBound(t *testing.T) {
	r := storekit.Seeded(t)
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	for budget := storekit.Operations(t); budget > 0; {
		for name, vic := range storekit.Victims(r) {
			if name == "leaky_bucket" {
				continue // it cannot be combined with charges after the response
			}
			c := kit.NewTestCounter(t, "z", 0, true, nil, vic.Spec)
			var open []*stores.Check
			var charges []storekit.Charge
			for range 100 {
				budget--
				now += []int64{0, 0, 1, r.Int64N(vic.Spec.Spec.Window), vic.Spec.Spec.Window}[r.IntN(5)]
				if len(open) > 0 && r.IntN(2) == 0 {
					i := r.IntN(len(open))
					z := &open[i].Zones[0]
					counted := int64(r.IntN(3)/2) * z.Cost
					local.Finish(context.Background(), z, counted)
					if counted > 0 {
						charges = append(charges, storekit.Charge{At: now, Cost: counted})
					}
					open = append(open[:i], open[i+1:]...)
					continue
				}
				check := storekit.CheckOfKey(c, 1)
				check.Zones[0].Cost = 1 + r.Int64N(2)
				if local.Decide(context.Background(), check); check.Admitted {
					open = append(open, check)
				}
			}
			if found := storekit.WorstWindow(charges, vic.Spec.Spec.Window); found > vic.Bound {
				t.Fatalf("%s: %d charged in a window, bound %d: %+v %+v", name, found, vic.Bound, vic.Spec.Alg, vic.Spec.Spec)
			}
		}
	}
}

// TestDebtIsBounded charges more than was admitted, as settle does. The debt, but for that of a
// meter, is at most one further capacity: a request is admitted once two capacities have drained,
// and not before the retry of a denial.
func TestDebtIsBounded(t *testing.T) {
	r := storekit.Seeded(t)
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	for range storekit.Operations(t) / 100 {
		for name, vic := range storekit.Victims(r) {
			if name == "leaky_bucket" {
				continue
			}
			vic.Spec.Spec.Overdraws = true
			c := kit.NewTestCounter(t, "z", 0, false, nil, vic.Spec)
			rule := c.Rules[0]
			for range 5 {
				check := storekit.CheckOfKey(c, 1)
				if local.Decide(context.Background(), check); check.Admitted {
					local.Finish(context.Background(), &check.Zones[0], r.Int64N(5*rule.Capacity()))
				}
				again := storekit.CheckOfKey(c, 1)
				again.Zones[0].Cost = 1 + r.Int64N(rule.Capacity())
				local.Decide(context.Background(), again)
				if !again.Admitted {
					checkRetry(t, name, local, c, &now, again)
				}
				_, owesAll := rule.(algorithms.Refilling)
				if most := 2*rule.Window()*(rule.Capacity()/rule.Limit()+1) + 2*rule.Window() + 2; !owesAll && again.Zones[0].Results[0].Reset > most {
					t.Fatalf("%s: the debt lasts for %d microseconds, want at most %d", name, again.Zones[0].Results[0].Reset, most)
				}
				now += r.Int64N(rule.Window())
			}
		}
	}
}

// checkRetry fails the test unless a denied check is admitted when its retry has
// elapsed, and not a microsecond earlier.
func checkRetry(t *testing.T, name string, local *Store, c *stores.Counter, now *int64, denied *stores.Check) {
	t.Helper()
	retry, cost := denied.Zones[0].Results[0].Retry, denied.Zones[0].Cost
	for _, early := range []int64{1, 0} {
		*now = denied.Now + retry - early
		check := storekit.CheckOfKey(c, 1)
		check.Zones[0].Cost = cost
		local.Decide(context.Background(), check)
		if check.Admitted != (early == 0) {
			t.Fatalf("%s: retry %d, %d microseconds early: admitted %v", name, retry, early, check.Admitted)
		}
	}
}

// TestShadowsChangeNothing runs the same trace with and without a shadow zone. The
// live zone decides the same, and the shadow is charged only where the live zone
// admits, and as a zone of its own would be.
func TestShadowsChangeNothing(t *testing.T) {
	r := storekit.Seeded(t)
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	for range storekit.Operations(t) / 100 {
		live, other := storekit.RandomRule(r, true, false), storekit.RandomRule(r, false, false)
		with, without := kit.NewTestCounter(t, "z", 0, false, nil, live), kit.NewTestCounter(t, "z", 0, false, nil, live)
		shadow := kit.NewTestCounter(t, "s", 0, false, nil, other)
		separate := kit.NewTestCounter(t, "s", 0, false, nil, other) // checked only when the live zone admits
		for step := range 100 {
			now += r.Int64N(1 + live.Spec.Window/4)
			k := stores.Key{Hi: 1, Lo: 1}
			check := &stores.Check{Shadows: 1, Zones: []stores.ZoneCheck{{Counter: with, Subject: stores.Subject{Key: k}, Cost: 1}, {Counter: shadow, Subject: stores.Subject{Key: k}, Cost: 1}}}
			b := &stores.Check{Zones: []stores.ZoneCheck{{Counter: without, Subject: stores.Subject{Key: k}, Cost: 1}}}
			local.Decide(context.Background(), check)
			local.Decide(context.Background(), b)
			if check.Admitted != b.Admitted || check.Turn != b.Turn {
				t.Fatalf("step %d: with a shadow admitted %v turn %d, without %v %d", step, check.Admitted, check.Turn, b.Admitted, b.Turn)
			}
			if !b.Admitted {
				if check.Zones[1].Charged {
					t.Fatalf("step %d: the shadow was charged for a denied request", step)
				}
				continue
			}
			c := &stores.Check{Zones: []stores.ZoneCheck{{Counter: separate, Subject: stores.Subject{Key: k}, Cost: 1}}}
			local.Decide(context.Background(), c)
			if check.Zones[1].Charged != c.Admitted {
				t.Fatalf("step %d: the shadow was charged: %v, a separate zone admits: %v", step, check.Zones[1].Charged, c.Admitted)
			}
		}
	}
}

// TestCostAboveCapacityIsDenied checks a cost above the capacity of one of two rules.
// It is denied for ever, and the other rule is not charged.
func TestCostAboveCapacityIsDenied(t *testing.T) {
	r := storekit.Seeded(t)
	local := &Store{Clock: func() int64 { return storekit.Hour }}
	for name, vic := range storekit.Victims(r) {
		c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1 << 20, Window: storekit.Hour, Cost: 1}}, vic.Spec)
		check := storekit.CheckOfKey(c, 1)
		check.Zones[0].Cost = c.Rules[1].Capacity() + 1
		local.Decide(context.Background(), check)
		if check.Admitted || check.Zones[0].Results[1].Retry != algorithms.Never {
			t.Errorf("%s: admitted %v, retry %d, want Never", name, check.Admitted, check.Zones[0].Results[1].Retry)
		}
		if left := check.Zones[0].Results[0].Remaining; left != 1<<20 {
			t.Errorf("%s: the other rule was charged: remaining %d", name, left)
		}
	}
}
