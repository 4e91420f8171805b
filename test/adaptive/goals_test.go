package main

import (
	"fmt"
	"math"
	"sync"
	"testing"
)

// seedsHeld is how many seeds the goals are the means of. All runs are the same on every machine: their time is virtual.
const seedsHeld = 2

// each runs f for each scenario and seed, a few at a time.
func each(t *testing.T, list []*scenario, f func(i int, sc *scenario, seed int64)) {
	t.Helper()
	t.Run("runs", func(t *testing.T) {
		for i, sc := range list {
			for seed := range int64(seedsHeld) {
				t.Run(fmt.Sprint(sc.name, seed), func(t *testing.T) {
					t.Parallel()
					f(i, sc, seed+1)
				})
			}
		}
	})
}

// goodput returns the goodput of scenarios in percent of the best fixed limit: its mean, and the worst.
func goodput(t *testing.T, list []*scenario) (mean, worst float64) {
	t.Helper()
	var mu sync.Mutex
	good := make([]float64, len(list))
	each(t, list, func(i int, sc *scenario, seed int64) {
		x := 100 * run(sc, newProduct, seed).good / best(sc, seed).good
		mu.Lock()
		defer mu.Unlock()
		good[i] += x / seedsHeld
	})
	worst = math.Inf(1)
	for i, x := range good {
		t.Logf("%5.1f %% %s", x, list[i].name)
		mean += x / float64(len(list))
		worst = min(worst, x)
	}
	return mean, worst
}

func TestGoodput(t *testing.T) {
	if mean, worst := goodput(t, models()); mean < 97 || worst < 88 {
		t.Errorf("goodput of the model's scenarios: mean %.1f %%, worst %.1f %%: want at least 97 and 88", mean, worst)
	}
}

func TestGoodputOfOthers(t *testing.T) {
	if mean, worst := goodput(t, heldBack()); mean < 95 || worst < 80 {
		t.Errorf("goodput of other scenarios: mean %.1f %%, worst %.1f %%: want at least 95 and 80", mean, worst)
	}
}

// named returns a scenario of the model's.
func named(t *testing.T, name string) *scenario {
	t.Helper()
	for _, sc := range models() {
		if sc.name == name {
			return sc
		}
	}
	t.Fatalf("no scenario %s", name)
	return nil
}

func TestRefusalsBelowTheCapacity(t *testing.T) {
	each(t, []*scenario{named(t, "0.9 after a minute")}, func(_ int, sc *scenario, seed int64) {
		if r := run(sc, newProduct, seed); r.denied > r.attempts/1000 {
			t.Errorf("seed %d: %.0f of %.0f refused at 0.9 of the capacity: want at most one in a thousand", seed, r.denied, r.attempts)
		}
	})
}

// TestStallAtTheStart has an upstream stand still for 300 ms at 0.8 of its capacity, as long as a new limit climbs: what it finds is too
// low, and soon mended.
func TestStallAtTheStart(t *testing.T) {
	var list []*scenario
	for _, at := range []float64{.05, .1, .2, .4, .8, 1.5, 3} {
		list = append(list, &scenario{name: fmt.Sprint("after ", at), seconds: 60, src: load(160, exponential(.2)), up: func() upstream {
			return &workers{servers: func(float64) int { return 40 }, stall: [2]float64{at, at + .3}}
		}})
	}
	var mu sync.Mutex
	var refused float64
	each(t, defaults(list), func(_ int, sc *scenario, seed int64) {
		r := run(sc, newProduct, seed)
		mu.Lock()
		defer mu.Unlock()
		refused += 100 * r.denied / r.attempts / float64(len(list)) / seedsHeld
	})
	if refused > 0.5 {
		t.Errorf("%.2f %% refused in the minute of a stall: want at most 0.5", refused)
	}
}

func TestNoDrift(t *testing.T) {
	var mu sync.Mutex
	var early, late float64
	each(t, []*scenario{named(t, "2x")}, func(_ int, sc *scenario, seed int64) {
		r := run(sc, newProduct, seed)
		mu.Lock()
		defer mu.Unlock()
		for i := range 32 { // some pairs of phases
			early += r.limits[44+i] / 32 / seedsHeld
			late += r.limits[len(r.limits)-32+i] / 32 / seedsHeld
		}
	})
	if r := late / early; r < 0.85 || r > 1.15 {
		t.Errorf("limit %.1f after eleven minutes of twice the load, %.1f after one: want no more than 15 %% between", late, early)
	}
}

func TestFairness(t *testing.T) {
	list := fairness()
	type shares struct{ first, second, light float64 }
	var mu sync.Mutex
	got := make([]shares, len(list))
	each(t, list, func(i int, sc *scenario, seed int64) {
		r := run(sc, newProduct, seed)
		mu.Lock()
		defer mu.Unlock()
		got[i].first += r.band(0) / seedsHeld
		got[i].second += r.band(1) / seedsHeld
		got[i].light += r.light() / seedsHeld
	})
	if x := got[0].first; x < 99 {
		t.Errorf("%.1f %% of the first class served: want at least 99", x)
	}
	if x := got[1].light; x < 95 {
		t.Errorf("%.1f %% of 20 light keys beside a heavy one: want at least 95", x)
	}
	if x := got[2].light; x < 88 {
		t.Errorf("%.1f %% of ten keys beside five whose requests take four times as long: want at least 88", x)
	}
	if x := got[3].second; x < 15 {
		t.Errorf("%.1f %% of the second class beside a first that takes more than there is: want at least 15", x)
	}
}

// TestKnownLimits checks that the known limits are those that they are compared as: what they do at 0.9 of the capacity.
func TestKnownLimits(t *testing.T) {
	want := map[string]float64{"Gradient2": 97, "Vegas": 46, "AIMD": 100, "Envoy": 73, "failsafe-go": 93}
	var mu sync.Mutex
	got := map[string]float64{}
	each(t, []*scenario{named(t, "0.9")}, func(_ int, sc *scenario, seed int64) {
		b := best(sc, seed).good
		for _, c := range contenders()[1:] {
			r := run(sc, c.gate(seed), seed)
			mu.Lock()
			got[c.name] += 100 * r.good / b / seedsHeld
			mu.Unlock()
		}
	})
	for name, x := range got {
		if math.Abs(x-want[name]) > 1 {
			t.Errorf("%s: goodput %.1f %%: want %v", name, x, want[name])
		}
	}
}

// TestPicture checks what the picture of docs/overload.md shows: at twice the capacity, nothing is answered in time without a
// limit, nor afterwards, and nearly all that the upstream can do with one.
func TestPicture(t *testing.T) {
	sc := overloaded()
	with, without := run(sc, newProduct, 1), run(sc, fixedAt(unlimited), 1)
	mean := func(of []float64, from, to int) (sum float64) {
		for _, n := range of[from:to] {
			sum += n / float64(to-from)
		}
		return sum
	}
	if x, y := mean(with.goodAt, 70, 180), mean(without.goodAt, 70, 180); x < 186 || y > 20 {
		t.Errorf("%.0f a second are answered in time with a limit, %.0f without: want nearly 200, and nearly none", x, y)
	}
	if x := mean(with.goodAt, 200, 300); x < 140 {
		t.Errorf("%.0f a second after the overload: want all 150", x)
	}
}
