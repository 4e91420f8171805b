package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// twins are both stores on one clock: what one is asked, the other is, too.
type twins struct {
	*virtualAt
	t     *testing.T
	local *memory.Store
}

func newTwins(t *testing.T) *twins {
	t.Helper()
	s := newVirtualAt(t)
	return &twins{s, t, &memory.Store{Clock: s.v.clock}}
}

// ask decides in both, which have to agree in words and in what they keep, and
// returns Redis' answer.
func (w *twins) ask(seconds float64, cost int64, zones ...*stores.Counter) *stores.Check {
	w.t.Helper()
	w.set(seconds)
	check, b := storestest.Items(cost, zones...), storestest.Items(cost, zones...)
	for _, ask := range []*stores.Check{check, b} {
		for i := range ask.Zones {
			ask.Zones[i].Shadow = ask.Zones[i].Counter.Zone == "shadow"
		}
	}
	w.Decide(context.Background(), check)
	w.local.Decide(context.Background(), b)
	what := fmt.Sprintf("at %v", seconds)
	compareAsks(w.t, what, check, b)
	for i := range check.Zones {
		compareStates(w.t, what, w.v, "diana", &check.Zones[i])
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
	return check
}

// owe charges the first item of an ask more, in both.
func (w *twins) owe(z *stores.ZoneCheck, cost int64) {
	again := *z
	w.v.tick()
	w.Finish(context.Background(), z, cost)
	w.local.Finish(context.Background(), &again, cost)
}

// TestDebtIgnoresExpiredStamps charges a debt to a log of which some stamps had
// left the window, and sets the clock back to where they had not. Neither store
// counts stamps that only one of the rings still holds.
func TestDebtIgnoresExpiredStamps(t *testing.T) {
	w := newTwins(t)
	for _, owed := range []int64{0, 1, 140} { // the last is more than a new ring in Redis has room for
		limit := 10 + 2*owed
		sp := algorithms.Spec{Limit: limit, Window: 60_000_000, Cost: 1}
		c := storestest.NewTestCounter(t, fmt.Sprint("log-", limit), 0, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: sp})
		for _, at := range []float64{100, 110, 150, 155} {
			w.ask(at, 1, c)
		}
		w.set(175) // 100 and 110 are over
		z := &storestest.Items(1, c).Zones[0]
		z.Rules = c.Rules
		debt := []int64{owed}
		for range owed {
			debt = append(debt, holdsBegin+145_000_000)
		}
		oweBoth(t, "at 175", w.v, w.Store, z, [][]int64{debt})
		want := limit - owed - 3
		if owed == 0 {
			want -= 2 // nothing was charged, so nothing has changed
		}
		if left := w.ask(156, 1, c).Zones[0].Results[0].Remaining; left != want {
			t.Errorf("limit %d: %d left, want %d", limit, left, want)
		}
	}
}

// TestSmallStepsOfTheClock sets the clock back by parts of a window, so that
// only some of what was charged lies ahead.
func TestSmallStepsOfTheClock(t *testing.T) {
	w := newTwins(t)
	for name, spec := range clockRules() {
		c := storestest.NewTestCounter(t, name, 0, false, nil, spec)
		at := 600.0
		for _, step := range []float64{0, 7, 20, -6, -1, -13, 0, -30, 50, -59, -61, 61} {
			at += step
			w.ask(at, 2, c)
			w.ask(at, 1, c)
		}
	}
}

// TestHeldZoneIsRepaired sets the clock back between two requests of a zone
// that holds costs until the response. The second charges nothing yet, and
// still repairs the state.
func TestHeldZoneIsRepaired(t *testing.T) {
	w := newTwins(t)
	for _, name := range []string{"fixed_window", "sliding_window", "sliding_log"} { // a meter is full then, and denies
		c := storestest.NewTestCounter(t, name, 0, true, nil, clockRules()[name])
		w.owe(&w.ask(600, 1, c).Zones[0], 1)
		if check := w.ask(300, 1, c); !check.Admitted {
			t.Errorf("%s: denied after one of %d", name, clockLimit)
		}
	}
}

// TestLogGrows fills logs that are longer than a new ring, one alone and two in
// one zone, with a clock step just as a ring has to grow.
func TestLogGrows(t *testing.T) {
	r := storestest.Seeded(t)
	for round := range 6 {
		w := newTwins(t)
		var specs []storestest.RuleSpec
		for range 1 + round%2 {
			specs = append(specs, storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 300 + r.Int64N(300), Window: 1_000_000, Cost: 1}})
		}
		c := storestest.NewTestCounter(t, "log", 0, false, nil, specs...)
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
			w.ask(at, cost, c)
		}
	}
}

// TestDebtSurvivesLimitChange owes more than a limit, which is then raised: all
// of the debt counts.
func TestDebtSurvivesLimitChange(t *testing.T) {
	w := newTwins(t)
	for name, alg := range map[string]algorithms.Algorithm{"log": &algorithms.SlidingLog{}, "window": &algorithms.SlidingWindow{}, "fixed": &algorithms.FixedWindow{}} {
		sp := algorithms.Spec{Limit: 5, Window: storestest.Hour, Cost: 1, Debt: true}
		low := storestest.NewTestCounter(t, name, 0, false, nil, storestest.RuleSpec{Alg: alg, Spec: sp})
		sp.Limit = 20
		high := storestest.NewTestCounter(t, name, 0, false, low.Table, storestest.RuleSpec{Alg: alg, Spec: sp})
		check := w.ask(1, 5, low)
		w.owe(&check.Zones[0], 5)
		if left := w.ask(1, 1, high).Zones[0].Results[0].Remaining; left != 9 {
			t.Errorf("%s: %d left of 20 after 5, 5 and 1", name, left)
		}
	}
}

// TestOwedUnderASmallerBurst charges after the response, under a rule with a
// small burst, what was admitted under a large one. All of it counts.
func TestOwedUnderASmallerBurst(t *testing.T) {
	w := newTwins(t)
	for _, limits := range [][2]int64{{40, 40}, {40, 7}, {7, 40}} {
		for _, debt := range []bool{false, true} {
			sp := algorithms.Spec{Limit: limits[0], Window: storestest.Hour, Cost: 1, Debt: debt}
			name := fmt.Sprint("z", limits[0], "-", limits[1], "-", debt)
			large := storestest.NewTestCounter(t, name, 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{Burst: 23}, Spec: sp})
			sp.Limit = limits[1]
			small := storestest.NewTestCounter(t, name, 0, false, large.Table, storestest.RuleSpec{Alg: &algorithms.GCRA{Burst: 5}, Spec: sp})
			w.ask(1, 20, large)
			z := &storestest.Items(1, small).Zones[0]
			z.Rules, z.Charged, z.Results = small.Rules, true, make([]stores.Result, 1)
			w.owe(z, 1)
			oweBoth(t, name, w.v, w.Store, z, [][]int64{{1}})
			if left := w.ask(1, 1, large).Zones[0].Results[0].Remaining; left > 2 {
				t.Errorf("%s: %d left of 23 after 20 and more", name, left)
			}
			if check := w.ask(1, 1, small); check.Admitted {
				t.Errorf("%s: one passes where 20 of 5 are used", name)
			}
		}
	}
}

// TestOwedUnderAnotherLimit charges after the response, alternating between two
// limits, more than either may owe. No debt is lost.
func TestOwedUnderAnotherLimit(t *testing.T) {
	w := newTwins(t)
	sp := algorithms.Spec{Limit: 40, Window: storestest.Hour, Cost: 1, Debt: true}
	high := storestest.NewTestCounter(t, "other", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{Burst: 10}, Spec: sp})
	sp.Limit = 7
	low := storestest.NewTestCounter(t, "other", 0, false, high.Table, storestest.RuleSpec{Alg: &algorithms.GCRA{Burst: 10}, Spec: sp})
	for i, c := range []*stores.Counter{high, low, high, low} {
		w.set(1)
		z := &storestest.Items(1, c).Zones[0]
		z.Rules, z.Charged, z.Results = c.Rules, true, make([]stores.Result, 1)
		w.owe(z, []int64{1000, 1, 1, 1}[i])
		compareStates(t, fmt.Sprint("limit ", c.Rules[0].Limit()), w.v, "diana", z)
		if left := w.ask(1, 1, c).Zones[0].Results[0]; left.Reset < 20*storestest.Hour/c.Rules[0].Limit() {
			t.Errorf("limit %d: forgotten in %d, want that to take as long as 20 requests", c.Rules[0].Limit(), left.Reset)
		}
	}
}

// TestTimeToLiveAfterRepair denies at a key that was filled before the clock
// was set back. The repaired key lives as long as its rule needs from now on.
func TestTimeToLiveAfterRepair(t *testing.T) {
	w := newTwins(t)
	c := storestest.NewTestCounter(t, "mended", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingWindow{}, Spec: algorithms.Spec{Limit: 2, Window: 10_000_000, Cost: 1}})
	w.ask(25, 2, c)
	z := &w.ask(18, 1, c).Zones[0]
	if z.Charged {
		t.Fatal("it passed, though the window is full")
	}
	w.expiry(t, z)
}

// TestZonesInOneCall decides three zones at once: a shadow denies no request,
// and all wait for the longest of their queues, whatever its index.
func TestZonesInOneCall(t *testing.T) {
	w := newTwins(t)
	zone := func(name string, alg algorithms.Algorithm, limit, wait int64) *stores.Counter {
		sp := algorithms.Spec{Limit: limit, Window: 1_000_000, Cost: 1, MaxWait: wait, MaxTurn: 10_000_000}
		return storestest.NewTestCounter(t, name, 0, false, nil, storestest.RuleSpec{Alg: alg, Spec: sp})
	}
	slow, quick := zone("slow", &algorithms.LeakyBucket{}, 2, 5_000_000), zone("quick", &algorithms.LeakyBucket{}, 100, 5_000_000)
	shadow, plain := zone("shadow", &algorithms.LeakyBucket{}, 1, 2_000_000), zone("plain", &algorithms.GCRA{}, 100, 0)
	for i := range int64(5) {
		check := w.ask(1, 1, slow, quick, plain, shadow)
		if !check.Admitted || check.Turn != i*500_000 {
			t.Errorf("request %d: admitted %v, leaves after %d", i, check.Admitted, check.Turn)
		}
		if admits := check.Zones[3].Admits; admits != (i < 3) {
			t.Errorf("request %d: the shadow admits: %v", i, admits)
		}
		w.ask(1, 1, quick)
	}
}
