package stores

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
)

// TestHeldCostKeepsTheBound holds the cost of many requests at a time and
// charges some of them when they are answered, as count_status does: what was
// charged keeps the rule's bound in any window, counted at the instants of the
// answers.
func TestHeldCostKeepsTheBound(t *testing.T) {
	r := seeded(t)
	now := int64(hour)
	local := &Local{Clock: func() int64 { return now }}
	for budget := operations(t, 20_000); budget > 0; {
		for name, vic := range victims(r) {
			if name == "leaky_bucket" {
				continue // pacing does not go with charges after the response
			}
			c := newTestCounter(t, "z", 0, true, nil, vic.spec)
			var open []*Ask
			var charges []charge
			for range 100 {
				budget--
				now += []int64{0, 0, 1, r.Int64N(vic.spec.spec.Window), vic.spec.spec.Window}[r.IntN(5)]
				if len(open) > 0 && r.IntN(2) == 0 {
					i := r.IntN(len(open))
					it := &open[i].Items[0]
					counted := int64(r.IntN(3)/2) * it.Cost
					local.Finish(context.Background(), it, counted)
					if counted > 0 {
						charges = append(charges, charge{now, counted})
					}
					open = append(open[:i], open[i+1:]...)
					continue
				}
				a := localAsk(c, 1)
				a.Items[0].Cost = 1 + r.Int64N(2)
				if local.Decide(context.Background(), a); a.Admitted {
					open = append(open, a)
				}
			}
			if found := worstWindow(charges, vic.spec.spec.Window); found > vic.bound {
				t.Fatalf("%s: %d were charged in a window, bound %d: %+v %+v", name, found, vic.bound, vic.spec.alg, vic.spec.spec)
			}
		}
	}
}

// TestOwedIsWaitedOut charges more than was admitted, as settle does. The debt
// is at most one further capacity: after two of them have drained, a request
// passes, and never before the retry that a denial names.
func TestOwedIsWaitedOut(t *testing.T) {
	r := seeded(t)
	now := int64(hour)
	local := &Local{Clock: func() int64 { return now }}
	for range operations(t, 20_000) / 100 {
		for name, vic := range victims(r) {
			if name == "leaky_bucket" {
				continue
			}
			vic.spec.spec.Debt = true
			c := newTestCounter(t, "z", 0, false, nil, vic.spec)
			rule := c.Rules[0]
			for range 5 {
				a := localAsk(c, 1)
				if local.Decide(context.Background(), a); a.Admitted {
					local.Finish(context.Background(), &a.Items[0], r.Int64N(5*rule.Capacity()))
				}
				again := localAsk(c, 1)
				again.Items[0].Cost = 1 + r.Int64N(rule.Capacity())
				local.Decide(context.Background(), again)
				if !again.Admitted {
					checkRetry(t, name, local, c, &now, again)
				}
				if most := 2*rule.Window()*(rule.Capacity()/rule.Limit()+1) + 2*rule.Window() + 2; again.Items[0].Results[0].Reset > most {
					t.Fatalf("%s: the debt lasts for %d microseconds, want at most %d", name, again.Items[0].Results[0].Reset, most)
				}
				now += r.Int64N(rule.Window())
			}
		}
	}
}

// checkRetry sees that a denied request passes when its retry has passed, and
// not a microsecond earlier.
func checkRetry(t *testing.T, name string, local *Local, c *Counter, now *int64, denied *Ask) {
	t.Helper()
	retry, cost := denied.Items[0].Results[0].Retry, denied.Items[0].Cost
	for _, early := range []int64{1, 0} {
		*now = denied.Now + retry - early
		a := localAsk(c, 1)
		a.Items[0].Cost = cost
		local.Decide(context.Background(), a)
		if a.Admitted != (early == 0) {
			t.Fatalf("%s: retry %d, %d microseconds early: admitted %v", name, retry, early, a.Admitted)
		}
	}
}

// TestShadowsChangeNothing runs the same trace with shadow zones and without:
// the live zones decide alike, and a shadow is charged only where they admit,
// within its own bound.
func TestShadowsChangeNothing(t *testing.T) {
	r := seeded(t)
	now := int64(hour)
	local := &Local{Clock: func() int64 { return now }}
	for range operations(t, 20_000) / 100 {
		live, alone := randomRule(r, true, false), randomRule(r, false, false)
		with, without := newTestCounter(t, "z", 0, false, nil, live), newTestCounter(t, "z", 0, false, nil, live)
		shadow := newTestCounter(t, "s", 0, false, nil, alone)
		twin := newTestCounter(t, "s", 0, false, nil, alone) // asked only when the live zone admits
		for step := range 100 {
			now += r.Int64N(1 + live.spec.Window/4)
			k := Key{1, 1}
			a := &Ask{Items: []Item{{Counter: shadow, Key: k, Cost: 1, Shadow: true}, {Counter: with, Key: k, Cost: 1}}}
			b := &Ask{Items: []Item{{Counter: without, Key: k, Cost: 1}}}
			local.Decide(context.Background(), a)
			local.Decide(context.Background(), b)
			if a.Admitted != b.Admitted || a.Turn != b.Turn {
				t.Fatalf("step %d: with a shadow admitted %v turn %d, without %v %d", step, a.Admitted, a.Turn, b.Admitted, b.Turn)
			}
			if !b.Admitted {
				if a.Items[0].Charged {
					t.Fatalf("step %d: the shadow was charged for a denied request", step)
				}
				continue
			}
			c := &Ask{Items: []Item{{Counter: twin, Key: k, Cost: 1}}}
			local.Decide(context.Background(), c)
			if a.Items[0].Charged != c.Admitted {
				t.Fatalf("step %d: the shadow was charged: %v, on its own it admits: %v", step, a.Items[0].Charged, c.Admitted)
			}
		}
	}
}

// TestCostAboveTheBurstNeverPasses asks for more than a rule can ever hold,
// beside a rule that could: it is denied for good, and nothing is charged.
func TestCostAboveTheBurstNeverPasses(t *testing.T) {
	r := seeded(t)
	local := &Local{Clock: func() int64 { return hour }}
	for name, vic := range victims(r) {
		c := newTestCounter(t, "z", 0, false, nil, ruleSpec{&algorithms.GCRA{}, algorithms.Spec{Limit: 1 << 20, Window: hour, Cost: 1}}, vic.spec)
		a := localAsk(c, 1)
		a.Items[0].Cost = c.Rules[1].Capacity() + 1
		local.Decide(context.Background(), a)
		if a.Admitted || a.Items[0].Results[1].Retry != algorithms.Never {
			t.Errorf("%s: admitted %v, retry %d, want never", name, a.Admitted, a.Items[0].Results[1].Retry)
		}
		if left := a.Items[0].Results[0].Remaining; left != 1<<20 {
			t.Errorf("%s: the other rule was charged: %d left", name, left)
		}
	}
}
