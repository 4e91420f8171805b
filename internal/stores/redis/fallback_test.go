package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// fleet is several instances that share one Redis, on one virtual clock.
type fleet struct {
	v     *virtual
	all   []*Store
	hooks []*faultHook
}

func newFleet(t *testing.T, srv *redistest.Server, n int, changes ...func(*Options)) *fleet {
	t.Helper()
	f := &fleet{v: &virtual{client: srv.Client(), now: storekit.Hour}}
	for range n {
		s, h := newVirtualShared(t, srv, f.v, changes...), new(faultHook)
		s.Observe(silent{})
		s.setInstances(int64(n))
		s.recall()
		s.hook(h)
		f.all, f.hooks = append(f.all, s), append(f.hooks, h)
	}
	return f
}

// set sets the fault of one instance, or of all if i is negative. Without a fault
// the breaker closes at once, as the next heartbeat would close it.
func (f *fleet) set(i int, to fault) {
	for n, h := range f.hooks {
		if i < 0 || n == i {
			h.fault = to
			if to == noFault {
				f.all[n].conn.nodes.first.answers()
			}
		}
	}
}

// decide decides a check at one instance.
func (f *fleet) decide(i int, c *stores.Counter, k stores.Key, cost int64) *stores.Check {
	for _, s := range f.all {
		s.setTime(f.v.now)
	}
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: cost}}}
	f.all[i].Decide(context.Background(), check)
	return check
}

// drain makes checks of cost 1 until one is denied, and returns how many were
// admitted.
func (f *fleet) drain(i int, c *stores.Counter, k stores.Key) (n int) {
	for f.decide(i, c, k, 1).Admitted {
		n++
	}
	return n
}

// counters returns a counter of one zone for each instance.
func (f *fleet) counters(t *testing.T, name string, spec storekit.RuleSpec) []*stores.Counter {
	t.Helper()
	var cs []*stores.Counter
	for _, s := range f.all {
		c := kit.NewTestCounter(t, name, 0, false, nil, spec)
		storekit.Adopt(t, s, c)
		cs = append(cs, c)
	}
	return cs
}

// TestBoundUnderFailures attacks instances while their calls to Redis fail and
// succeed again, with every kind of failure. In any window, over any number of
// outages, Redis admits no more than the bound, and no instance admits more than
// the bound of its share in the fallback. No key remains denied afterwards.
func TestBoundUnderFailures(t *testing.T) {
	srv := redistest.Start(t)
	r := storekit.Seeded(t)
	worst := make(map[string]float64)
	for budget, trial := storekit.Operations(t), 0; budget > 0; trial++ {
		for name, vic := range storekit.Victims(r) {
			n := 1 + r.IntN(4)
			f := newFleet(t, srv, n)
			h := &history{fleet: f, r: r, counters: f.counters(t, fmt.Sprintf("p%d", trial), vic.Spec), window: vic.Spec.Spec.Window}
			h.key = stores.Key{Hi: 1, Lo: r.Uint64() >> r.IntN(40)}
			h.fallback = make([][]storekit.Charge, n)
			const checks = 120
			budget -= checks
			attack(r, vic, checks, h.decide)
			h.check(t, name, vic, worst)
			for _, s := range f.all {
				s.closeClient()
			}
			if t.Failed() {
				return
			}
		}
		(&virtual{client: srv.Client()}).flush(t)
	}
	t.Logf("highest cost admitted in a window, as a part of the bound: %v", worst)
}

// history records what the instances of a fleet admit.
type history struct {
	*fleet
	r        *rand.Rand
	counters []*stores.Counter
	key      stores.Key
	window   int64
	shared   []storekit.Charge   // by Redis
	fallback [][]storekit.Charge // by each instance
	charges  []storekit.Charge   // by any
}

func (h *history) decide(at, cost int64) (bool, int64) {
	h.v.now = at
	if h.r.IntN(12) == 0 {
		i := h.r.IntN(len(h.all)+1) - 1 // -1: all
		h.set(i, fault(h.r.IntN(5)))
	}
	i := h.r.IntN(len(h.all))
	if h.r.IntN(20) == 0 && !h.all[i].isDown() {
		h.all[i].setTime(at)
		h.all[i].payDebts(context.Background())
	}
	check := h.fleet.decide(i, h.counters[i], h.key, cost)
	if check.Admitted {
		h.charges = append(h.charges, storekit.Charge{At: at, Cost: cost})
		if check.Mode == stores.ModeFallback {
			h.fallback[i] = append(h.fallback[i], storekit.Charge{At: at, Cost: cost})
		} else {
			h.shared = append(h.shared, storekit.Charge{At: at, Cost: cost})
		}
	}
	var retry int64
	for _, res := range check.Zones[0].Results {
		retry = max(retry, res.Retry)
	}
	return check.Admitted, retry
}

func (h *history) check(t *testing.T, name string, vic storekit.Victim, worst map[string]float64) {
	t.Helper()
	total := vic.Bound
	if found := storekit.WorstWindow(h.shared, h.window); found > vic.Bound {
		t.Errorf("%s: Redis admitted %d in a window, bound %d: %+v", name, found, vic.Bound, vic.Spec)
	}
	for i := range h.all {
		bound := shareBound(name, h.counters[i].Share(int64(len(h.all)) * 1e6)[0])
		if len(h.fallback[i]) > 0 {
			total += bound
		}
		if found := storekit.WorstWindow(h.fallback[i], h.window); found > bound {
			t.Errorf("%s: the fallback admitted %d at one of %d instances in a window, bound %d: %+v", name, found, len(h.all), bound, vic.Spec)
		}
	}
	found := storekit.WorstWindow(h.charges, h.window)
	worst[name] = max(worst[name], float64(int(100*float64(found)/float64(total)))/100)
	h.v.now += 10 * (h.window + 1_000_000)
	for i := range h.all {
		if check := h.fleet.decide(i, h.counters[i], h.key, 1); !check.Admitted {
			t.Errorf("%s: instance %d of %d denies long after the outages, in mode %v: %+v", name, i, len(h.all), check.Mode, check.Zones[0].Results)
		}
		h.v.now += 10 * h.window
	}
}

// shareBound returns the bound of a rule that enforces a share.
func shareBound(name string, share algorithms.Rule) int64 {
	l, b := share.Limit(), share.Capacity()
	switch {
	case name == "fixed_window":
		return 2*l - 1
	case strings.HasPrefix(name, "fixed"):
		return 2 * l
	case strings.HasPrefix(name, "sliding"):
		return l
	}
	return l + b
}

// eachAlgorithm returns a rule of 12 per minute for each algorithm.
func eachAlgorithm() map[string]storekit.RuleSpec {
	sp := algorithms.Spec{Limit: 12, Window: 60_000_000, Cost: 1}
	return map[string]storekit.RuleSpec{
		"fixed_window":   {Alg: &algorithms.FixedWindow{}, Spec: sp},
		"sliding_log":    {Alg: &algorithms.SlidingLog{}, Spec: sp},
		"sliding_window": {Alg: &algorithms.SlidingWindow{}, Spec: sp},
		"token_bucket":   {Alg: &algorithms.TokenBucket{}, Spec: sp},
		"leaky_bucket":   {Alg: &algorithms.LeakyBucket{NoDelay: true}, Spec: sp},
		"gcra":           {Alg: &algorithms.GCRA{}, Spec: sp},
	}
}

// TestFallbackStartsFromLastReport uses part of a limit, and then makes Redis
// unavailable. The same part of each instance's third is used.
func TestFallbackStartsFromLastReport(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range eachAlgorithm() {
		for used, want := range map[int]int{0: 4, 6: 2, 9: 1, 12: 0} {
			f := newFleet(t, srv, 3)
			c := f.counters(t, fmt.Sprintf("%s-%d", name, used), spec)
			for range used {
				f.decide(0, c[0], stores.Key{Hi: 1, Lo: 2}, 1)
			}
			f.set(-1, faultOOM)
			if n := f.drain(0, c[0], stores.Key{Hi: 1, Lo: 2}); n != want {
				t.Errorf("%s: fallback after %d of 12: %d admitted, want %d", name, used, n, want)
			}
			if n := f.drain(1, c[1], stores.Key{Hi: 1, Lo: 2}); n != 4 {
				t.Errorf("%s: fallback of an instance that never checked the key: %d admitted, want 4", name, n)
			}
		}
	}
}

// TestDebtsAreCharged admits without Redis. The debt is charged in Redis with the
// next check of the key, or in the background if there is none. What may have been
// charged is not charged twice.
func TestDebtsAreCharged(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range eachAlgorithm() {
		for _, background := range []bool{false, true} {
			f := newFleet(t, srv, 3)
			c := f.counters(t, fmt.Sprintf("%s-%v", name, background), spec)
			f.decide(0, c[0], k, 1) // in Redis
			f.set(-1, faultRefused)
			for i := range f.all {
				f.v.now += 1000
				f.decide(i, c[i], k, 3)
			}
			f.set(-1, noFault)
			f.v.now += 2 * rampLasts
			for i, s := range f.all {
				f.hooks[i].fault = faultOOM // a debt whose charge fails remains
				if background {
					s.payDebts(context.Background())
				} else {
					f.decide(i, c[i], k, 13)
				}
				f.set(i, noFault)
			}
			f.v.now += 2 * rampLasts
			for i, s := range f.all {
				if background {
					s.setTime(f.v.now)
					s.payDebts(context.Background())
				} else if i > 0 {
					f.decide(i, c[i], k, 12) // denied, but its debt is charged
				}
			}
			// 1 and three times 3 of 12 are used, of which a meter has drained 1.33.
			want := 2
			if spec.Alg.Lua() == new(algorithms.GCRA).Lua() {
				want = 3
			}
			if n := f.drain(0, c[0], k); n != want {
				t.Errorf("%s, in the background %v: %d admitted, want %d", name, background, n, want)
			}
			for i := range f.all {
				if owes(c[i]) {
					t.Errorf("%s: debts remain", name)
				}
			}
		}
	}
}

// TestUnknownOutcomeIsNotChargedTwice loses the reply to a check that Redis has
// charged. What the fallback admits instead is not charged again, unless the check
// had failed with an error reply.
func TestUnknownOutcomeIsNotChargedTwice(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range eachAlgorithm() {
		for fault, want := range map[fault]int{faultReply: 8, faultOOM: 8, faultTimeout: 12} {
			f := newFleet(t, srv, 1)
			c := f.counters(t, fmt.Sprintf("%s-%d", name, fault), spec)
			if err := f.all[0].conn.client.ScriptLoad(context.Background(), f.all[0].conn.script.text).Err(); err != nil {
				t.Fatal(err)
			}
			f.all[0].conn.nodes.first.tracker.retire(time.Now()) // so that the check is made over a new connection
			f.set(0, fault)
			if check := f.decide(0, c[0], k, 4); !check.Admitted || check.Mode != stores.ModeFallback {
				t.Fatalf("%s: admitted %v in mode %v", name, check.Admitted, check.Mode)
			}
			f.set(0, noFault)
			key := namesOf("diana", &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}})[0]
			if charged := f.v.client.Exists(context.Background(), key).Val() == 1; charged != (fault == faultReply) {
				t.Fatalf("%s, fault %d: charged in Redis: %v", name, fault, charged)
			}
			f.v.now += rampLasts
			if n := f.drain(0, c[0], k); n != want {
				t.Errorf("%s, fault %d: %d admitted, want %d", name, fault, n, want)
			}
		}
	}
}

// TestChargesDuringFallbackAreOwed finishes a request of the fallback after Redis
// is available again: its charge becomes a debt.
func TestChargesDuringFallbackAreOwed(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range eachAlgorithm() {
		f := newFleet(t, srv, 1)
		spec.Spec.Overdraws = true
		c := kit.NewTestCounter(t, name, 0, true, nil, spec)
		f.set(0, faultOOM)
		check := f.decide(0, c, k, 5)
		f.set(0, noFault)
		f.v.now += rampLasts
		f.decide(0, c, k, 1) // there is no debt yet
		f.all[0].Finish(context.Background(), &check.Zones[0], 5)
		open := f.decide(0, c, k, 1)
		if left := open.Zones[0].Results[0].Remaining; open.Mode != stores.ModeShared || left != 5 {
			t.Errorf("%s: remaining %d, want 12 less the 5 charged in the fallback and 2 held", name, left)
		}
	}
}

// TestRampAfterOutage checks many keys during the ramp after an outage. After a pause, more and
// more keys are decided by Redis, all of them at its end, and none is decided by
// the fallback again.
func TestRampAfterOutage(t *testing.T) {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 1)
	c := f.counters(t, "ramp", eachAlgorithm()["gcra"])
	f.set(0, faultOOM)
	f.decide(0, c[0], stores.Key{}, 1)
	f.set(0, noFault)
	keys, shared := make([]stores.Key, 200), make(map[stores.Key]bool)
	for i := range keys {
		keys[i] = stores.Key{Hi: uint64(i), Lo: rand.Uint64()}
	}
	for _, percent := range []int{-10, 0, 10, 50, 90, 100} {
		f.v.now = storekit.Hour + holdLasts + int64(percent)*(rampLasts-holdLasts)/100
		for _, k := range keys {
			if mode := f.decide(0, c[0], k, 1).Mode; mode == stores.ModeShared {
				shared[k] = true
			} else if shared[k] {
				t.Fatalf("a key that Redis had decided: mode %v", mode)
			}
		}
		if n := len(shared) / 2; n < percent-15 || n > percent+15 || percent <= 0 && n > 0 {
			t.Errorf("after %d%% of the ramp Redis decides %d%% of the keys", percent, n)
		}
	}
	if len(shared) != len(keys) {
		t.Errorf("after the ramp Redis decides %d of %d keys", len(shared), len(keys))
	}
}

// TestFewerInstancesAreAcceptedLater counts fewer instances, first for a moment, as
// after Redis has lost its memory, and then permanently.
func TestFewerInstancesAreAcceptedLater(t *testing.T) {
	s := New(Options{Name: "redis", Clock: func() int64 { return 0 }}, silent{})
	start := time.Now()
	for _, step := range []struct {
		second        float64
		counted, want int64
	}{
		{0, 3, 3}, {1, 1, 3}, {2, 2, 3}, {3, 3, 3}, {4, 2, 3}, {8.9, 2, 3}, {9, 2, 2}, {10, 4, 4}, {11, 1, 4}, {16, 1, 1}, {17, 2, 2},
	} {
		s.instances.set(step.counted, start.Add(time.Duration(step.second*float64(time.Second))))
		if n := s.Instances(); n != step.want {
			t.Errorf("after %v s, with %d counted: %d instances, want %d", step.second, step.counted, n, step.want)
		}
	}
}

// TestLateCallChangesNothing suspends Redis while calls are in flight. When Redis
// runs them after all, they charge nothing, because their deadlines have passed.
func TestLateCallChangesNothing(t *testing.T) {
	srv := redistest.Start(t)
	start := time.Now()
	s := newTestShared(t, srv, func() int64 { return storekit.Hour + time.Since(start).Microseconds() })
	s.Observe(silent{})
	client, ctx := srv.Client(), context.Background()
	c := kit.NewTestCounter(t, "late", 0, false, nil, eachAlgorithm()["fixed_window"])
	call := func(n uint64) error {
		k := stores.Key{Hi: n, Lo: 1}
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		keys, op := encodeCheck("diana", &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}})
		_, err := s.conn.callOnce(ctx, keys, op)
		return err
	}
	exists := func(n uint64) bool {
		k := stores.Key{Hi: n, Lo: 1}
		return client.Exists(ctx, namesOf("diana", &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k, Tag: k}})[0]).Val() == 1
	}
	waitFor(t, "Redis replies", func() bool { return call(0) == nil })
	srv.Stall()
	for n := range uint64(5) {
		if err := call(1 + n); err == nil || n == 0 && !mayHaveRun(err) { // later ones wait for a new connection
			t.Errorf("%v from a suspended Redis, want an unknown outcome", err)
		}
	}
	srv.Resume()
	waitFor(t, "Redis replies", func() bool { return call(100) == nil })
	if !exists(0) || !exists(100) {
		t.Error("a call with a reply was not charged")
	}
	for n := range uint64(5) {
		if exists(1 + n) {
			t.Errorf("call %d was charged after its deadline", n)
		}
	}
}

// TestClockAheadIsLearned sets Redis' clock ahead of the estimate. The call that
// Redis rejects as late is sent again, and succeeds.
func TestClockAheadIsLearned(t *testing.T) {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 1)
	c := f.counters(t, "ahead", eachAlgorithm()["gcra"])
	f.decide(0, c[0], stores.Key{Hi: 1, Lo: 2}, 1)
	s := f.all[0]
	s.askAlways() // Redis decides every check
	for _, step := range []int64{3_600_000_000, -3_600_000_000, 40_000_000} {
		s.setTime(f.v.now + step)
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c[0], Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}, Tag: stores.Key{Hi: 1, Lo: 2}}, Cost: 1}}}
		s.Decide(context.Background(), check)
		if check.Mode != stores.ModeShared || check.Now < f.v.now+step {
			t.Errorf("clock stepped by %d: mode %v at %d", step, check.Mode, check.Now-f.v.now)
		}
	}
}
