package redis

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// bothStores makes the same checks in Redis, in a ledger and in the store of this process, on one clock.
type bothStores struct {
	*virtualStore
	t      *testing.T
	ledger *storekit.Ledger
	local  *memory.Store // nil: something was handed over, which it is not
}

func newBothStores(t *testing.T) *bothStores {
	t.Helper()
	s := newVirtualStore(t)
	return &bothStores{s, t, &storekit.Ledger{Clock: s.v.clock}, &memory.Store{Clock: s.v.clock}}
}

// decide decides the same check in all stores, whose results and states have to
// agree, and returns the check that Redis decided.
func (w *bothStores) decide(seconds float64, cost int64, zones ...*stores.Counter) *stores.Check {
	w.t.Helper()
	w.set(seconds)
	check, same, local := storekit.CheckOf(cost, zones...), storekit.CheckOf(cost, zones...), storekit.CheckOf(cost, zones...)
	for _, c := range []*stores.Check{check, same, local} {
		for i := range c.Zones {
			if c.Zones[i].Counter.Zone == "shadow" { // the last ones
				c.Shadows++
			}
		}
	}
	forgetSnapshots(check)
	w.Decide(context.Background(), check)
	w.ledger.Decide(context.Background(), same)
	what := fmt.Sprintf("at %v", seconds)
	compareChecks(w.t, what, check, same)
	if w.local != nil {
		w.local.Decide(context.Background(), local)
		compareChecks(w.t, what+", in this process", check, local)
	}
	for i := range check.Zones {
		compareStates(w.t, what, w.v, w.ledger, &check.Zones[i])
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
	return check
}

// handOver hands over to Redis and to the ledger.
func (w *bothStores) handOver(what string, z *stores.ZoneCheck, h *memory.Handover) {
	w.t.Helper()
	w.local = nil
	handOver(w.t, what, w.v, w.Store, w.ledger, z, h)
}

// finish finishes a zone check in all stores, with another charge.
func (w *bothStores) finish(z *stores.ZoneCheck, cost int64) {
	same, local := *z, *z
	same.Results, local.Results = slices.Clone(z.Results), slices.Clone(z.Results)
	w.v.tick()
	w.Finish(context.Background(), z, cost)
	w.ledger.Finish(context.Background(), &same, cost)
	if w.local != nil {
		w.local.Finish(context.Background(), &local, cost)
	}
}

// TestDebtIgnoresExpiredStamps charges a debt to a log of which some stamps have
// expired, and sets the clock back to before that. Neither store counts stamps
// that remain in only one of the rings.
func TestDebtIgnoresExpiredStamps(t *testing.T) {
	w := newBothStores(t)
	for _, owed := range []int64{0, 1, 140} { // the last exceeds the size of a new ring in Redis
		limit := 10 + 2*owed
		sp := algorithms.Spec{Limit: limit, Window: 60_000_000, Cost: 1}
		c := kit.NewTestCounter(t, fmt.Sprint("log-", limit), 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: sp})
		for _, at := range []float64{100, 110, 150, 155} {
			w.decide(at, 1, c)
		}
		w.set(175) // 100 and 110 have expired
		z := &storekit.CheckOf(1, c).Zones[0]
		z.Rules = c.Rules
		debt := []int64{owed, 1}
		for range owed {
			debt = append(debt, virtualStart+145_000_000)
		}
		w.handOver("at 175", z, &memory.Handover{Time: w.v.now, Debts: [][]int64{debt}})
		want := limit - owed - 3
		if owed == 0 {
			want -= 2 // nothing was charged, so nothing has changed
		}
		if left := w.decide(156, 1, c).Zones[0].Results[0].Remaining; left != want {
			t.Errorf("limit %d: remaining %d, want %d", limit, left, want)
		}
	}
}

// TestPutBackIgnoresExpiredStamps raises a log of which some timestamps have left the
// window, and sets the clock back to before that. They count no longer.
func TestPutBackIgnoresExpiredStamps(t *testing.T) {
	w := newBothStores(t)
	c := kit.NewTestCounter(t, "log", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 10, Window: 60_000_000, Cost: 1}})
	for _, at := range []float64{100, 110, 150, 155} {
		w.decide(at, 1, c)
	}
	w.set(175) // 100 and 110 have left
	z := &storekit.CheckOf(1, c).Zones[0]
	z.Rules = c.Rules
	told := make([]int64, c.Rules[0].(algorithms.Handover).SnapshotWords())
	copy(told, []int64{1, virtualStart + 160_000_000, virtualStart + 160_000_000, 1, 0, 1, virtualStart + 160_000_000})
	w.handOver("at 175", z, &memory.Handover{Time: w.v.now, Told: [][]int64{told}})
	if left := w.decide(156, 1, c).Zones[0].Results[0].Remaining; left != 10-2-1 {
		t.Errorf("remaining %d, want %d", left, 10-2-1)
	}
}

// TestPutBackAlignsWindows puts back an aligned window after the clock of Redis was set: it becomes
// the one that contains its start, and ends as all do.
func TestPutBackAlignsWindows(t *testing.T) {
	const minute = 60
	w := newBothStores(t)
	c := kit.NewTestCounter(t, "aligned", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{Align: true}, Spec: algorithms.Spec{Limit: 10, Window: minute * 1_000_000, Cost: 1}})
	begin := float64(minute - virtualStart/1_000_000%minute) // of a window
	w.set(begin + minute + 50)
	z := &storekit.CheckOf(1, c).Zones[0]
	z.Rules = c.Rules
	h := &memory.Handover{Time: w.v.now - (minute+10)*1_000_000, Told: [][]int64{{virtualStart + int64(begin)*1_000_000, 3}}}
	w.handOver("in the window", z, h)
	for _, step := range []struct {
		at   float64
		left int64
	}{{begin + 2*minute - 1, 6}, {begin + 2*minute, 9}} {
		if left := w.decide(step.at, 1, c).Zones[0].Results[0].Remaining; left != step.left {
			t.Errorf("%v s after the beginning: %d left, want %d", step.at-begin, left, step.left)
		}
	}
}

// TestOldDebtOfALongLog charges a debt to a log that has many timestamps both before and
// after it. The log stays in order: when the first one leaves the window, the others count.
func TestOldDebtOfALongLog(t *testing.T) {
	w := newBothStores(t)
	const limit, before, after, owed = 4000, 1476, 1024, 600
	c := kit.NewTestCounter(t, "log", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: limit, Window: 60_000_000, Cost: 1}})
	w.decide(100, 1, c)
	w.decide(110, before, c)
	w.decide(120, after, c)
	w.set(130)
	z := &storekit.CheckOf(1, c).Zones[0]
	z.Rules = c.Rules
	debt := []int64{owed, owed, virtualStart + 105_000_000}
	w.handOver("at 130", z, &memory.Handover{Time: w.v.now, Debts: [][]int64{debt}})
	if left := w.decide(167, 1, c).Zones[0].Results[0].Remaining; left > limit-before-after-1 {
		t.Errorf("remaining %d of %d after %d, %d and 1", left, limit, before, after)
	}
}

// TestSmallClockSteps sets the clock back by less than a window, so that only some
// of the charges are in the future.
func TestSmallClockSteps(t *testing.T) {
	w := newBothStores(t)
	for name, spec := range clockRules() {
		c := kit.NewTestCounter(t, name, 0, false, nil, spec)
		at := 600.0
		for _, step := range []float64{0, 7, 20, -6, -1, -13, 0, -30, 50, -59, -61, 61} {
			at += step
			w.decide(at, 2, c)
			w.decide(at, 1, c)
		}
	}
}

// TestHeldZoneIsRepaired sets the clock back between two requests of a zone that
// holds costs until the response. The second repairs the state, though it charges
// nothing yet.
func TestHeldZoneIsRepaired(t *testing.T) {
	w := newBothStores(t)
	for _, name := range []string{"fixed_window", "sliding_window", "sliding_log"} { // after the step a meter is full, and denies
		c := kit.NewTestCounter(t, name, 0, true, nil, clockRules()[name])
		w.finish(&w.decide(600, 1, c).Zones[0], 1)
		if check := w.decide(300, 1, c); !check.Admitted {
			t.Errorf("%s: denied after 1 of %d", name, clockLimit)
		}
	}
}

// TestLogGrows fills logs beyond the size of a new ring, one or two in a zone,
// with clock steps at the moment at which a ring has to grow.
func TestLogGrows(t *testing.T) {
	r := storekit.Seeded(t)
	for round := range 6 {
		w := newBothStores(t)
		var specs []storekit.RuleSpec
		for range 1 + round%2 {
			specs = append(specs, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 300 + r.Int64N(300), Window: 1_000_000, Cost: 1}})
		}
		c := kit.NewTestCounter(t, "log", 0, false, nil, specs...)
		at := 100.0
		for i := range 500 {
			switch at += r.Float64() / float64(200+100*round); {
			case i == 128 && round == 1, i%125 == 124 && round > 3:
				at -= 0.3 * r.Float64()
			}
			cost := int64(1)
			if round%2 == 0 && r.IntN(4) == 0 {
				cost = 1 + r.Int64N(5)
			}
			w.decide(at, cost, c)
		}
	}
}

// TestDebtSurvivesLimitChange charges more than a limit, which is then raised: all
// of the debt counts.
func TestDebtSurvivesLimitChange(t *testing.T) {
	w := newBothStores(t)
	for name, alg := range map[string]algorithms.Algorithm{"log": &algorithms.SlidingLog{}, "window": &algorithms.SlidingWindow{}, "fixed": &algorithms.FixedWindow{}} {
		sp := algorithms.Spec{Limit: 5, Window: storekit.Hour, Cost: 1, Overdraws: true}
		low := kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: alg, Spec: sp})
		sp.Limit = 20
		high := kit.NewTestCounter(t, name, 0, false, low.Table, storekit.RuleSpec{Alg: alg, Spec: sp})
		check := w.decide(1, 5, low)
		w.finish(&check.Zones[0], 5)
		if left := w.decide(1, 1, high).Zones[0].Results[0].Remaining; left != 9 {
			t.Errorf("%s: remaining %d of 20 after 5, 5 and 1, want 9", name, left)
		}
	}
}

// TestChargeUnderSmallerBurst charges under a rule with a small burst, after the
// response, what a rule with a large burst admitted. All of it counts.
func TestChargeUnderSmallerBurst(t *testing.T) {
	w := newBothStores(t)
	for _, limits := range [][2]int64{{40, 40}, {40, 7}, {7, 40}} {
		for _, debt := range []bool{false, true} {
			sp := algorithms.Spec{Limit: limits[0], Window: storekit.Hour, Cost: 1, Overdraws: debt}
			name := fmt.Sprint("z", limits[0], "-", limits[1], "-", debt)
			large := kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 23}, Spec: sp})
			sp.Limit = limits[1]
			small := kit.NewTestCounter(t, name, 0, false, large.Table, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 5}, Spec: sp})
			w.decide(1, 20, large)
			z := &storekit.CheckOf(1, small).Zones[0]
			z.Rules, z.Charged, z.Results = small.Rules, true, make([]stores.Result, 1)
			w.finish(z, 1)
			level := small.Rules[0].Args(0)[2] // of one cost
			w.handOver(name, z, &memory.Handover{Time: w.v.now, Debts: [][]int64{{level}}})
			if left := w.decide(1, 1, large).Zones[0].Results[0].Remaining; left > 2 {
				t.Errorf("%s: remaining %d of 23 after 20 and more, want at most 2", name, left)
			}
			if check := w.decide(1, 1, small); check.Admitted {
				t.Errorf("%s: admitted though 20 of 5 are used", name)
			}
		}
	}
}

// TestChargeUnderAnotherLimit charges after the response, alternating between two
// limits, more than the highest debt of either. No debt is lost.
func TestChargeUnderAnotherLimit(t *testing.T) {
	w := newBothStores(t)
	sp := algorithms.Spec{Limit: 40, Window: storekit.Hour, Cost: 1, Overdraws: true}
	high := kit.NewTestCounter(t, "other", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 10}, Spec: sp})
	sp.Limit = 7
	low := kit.NewTestCounter(t, "other", 0, false, high.Table, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 10}, Spec: sp})
	for i, c := range []*stores.Counter{high, low, high, low} {
		w.set(1)
		z := &storekit.CheckOf(1, c).Zones[0]
		z.Rules, z.Charged, z.Results = c.Rules, true, make([]stores.Result, 1)
		w.finish(z, []int64{1000, 1, 1, 1}[i])
		compareStates(t, fmt.Sprint("limit ", c.Rules[0].Limit()), w.v, w.ledger, z)
		if left := w.decide(1, 1, c).Zones[0].Results[0]; left.Reset < 20*storekit.Hour/c.Rules[0].Limit() {
			t.Errorf("limit %d: reset in %d microseconds, want at least the time of 20 requests", c.Rules[0].Limit(), left.Reset)
		}
	}
}

// TestTimeToLiveAfterRepair denies a check of a key that was filled before the
// clock was set back. The repaired key expires when its rule needs it no longer.
func TestTimeToLiveAfterRepair(t *testing.T) {
	w := newBothStores(t)
	c := kit.NewTestCounter(t, "repaired", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingWindow{}, Spec: algorithms.Spec{Limit: 2, Window: 10_000_000, Cost: 1}})
	w.decide(25, 2, c)
	z := &w.decide(18, 1, c).Zones[0]
	if z.Charged {
		t.Fatal("admitted though the window is full")
	}
	w.expiry(t, z)
}

// TestDenialRepairsOneOfTwoRules sets the clock back by so little that only one of two rules cannot
// have written its state. The denial repairs it.
func TestDenialRepairsOneOfTwoRules(t *testing.T) {
	w := newBothStores(t)
	c := kit.NewTestCounter(t, "two", 0, false, nil,
		storekit.RuleSpec{Alg: &algorithms.SlidingWindow{}, Spec: algorithms.Spec{Limit: 2, Window: 10_000_000, Cost: 1}},
		storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 1000}, Spec: algorithms.Spec{Limit: 100, Window: 1_000_000, Cost: 1}})
	w.decide(25, 2, c)
	if w.decide(18, 1, c).Admitted {
		t.Fatal("admitted though the window is full")
	}
	if !w.decide(30, 1, c).Admitted {
		t.Error("denied 12 s after the clock was set back, want all of the window of 10 s to have ended")
	}
}

// TestShadowKeepsItsOwnTurn decides a queue in shadow beside a slower one. It is charged at its own
// delay.
func TestShadowKeepsItsOwnTurn(t *testing.T) {
	w := newBothStores(t)
	queue := func(name string, limit int64) *stores.Counter {
		sp := algorithms.Spec{Limit: limit, Window: 1_000_000, Cost: 1, MaxWait: 5_000_000, MaxTurn: 10_000_000}
		return kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: sp})
	}
	slow, shadow := queue("slow", 2), queue("shadow", 100)
	for i := range int64(4) {
		check := w.decide(1, 1, slow, shadow)
		if d := check.Zones[1].Results[0].Delay; check.Turn != i*500_000 || d != i*10_000 {
			t.Errorf("request %d: delayed by %d, in shadow by %d; want %d and %d", i, check.Turn, d, i*500_000, i*10_000)
		}
	}
}

// TestZonesInOneCall decides several zones in one call. A shadow denies no
// request, and all zones are delayed by the longest of their queues, whatever its
// index.
func TestZonesInOneCall(t *testing.T) {
	w := newBothStores(t)
	zone := func(name string, alg algorithms.Algorithm, limit, wait int64) *stores.Counter {
		sp := algorithms.Spec{Limit: limit, Window: 1_000_000, Cost: 1, MaxWait: wait, MaxTurn: 10_000_000}
		return kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: alg, Spec: sp})
	}
	slow, quick := zone("slow", &algorithms.LeakyBucket{}, 2, 5_000_000), zone("quick", &algorithms.LeakyBucket{}, 100, 5_000_000)
	shadow, plain := zone("shadow", &algorithms.LeakyBucket{}, 1, 2_000_000), zone("plain", &algorithms.GCRA{}, 100, 0)
	for i := range int64(5) {
		check := w.decide(1, 1, slow, quick, plain, shadow)
		if !check.Admitted || check.Turn != i*500_000 {
			t.Errorf("request %d: admitted %v, delayed by %d", i, check.Admitted, check.Turn)
		}
		if admits := check.Zones[3].Admits; admits != (i < 3) {
			t.Errorf("request %d: the shadow admits: %v", i, admits)
		}
		w.decide(1, 1, quick)
	}
}
