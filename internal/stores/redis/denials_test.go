package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
	"github.com/dianalimiter/diana/stores"
)

// called says whether the last decision called Redis: the call's number is no
// longer the one that tick set.
func (v *virtual) called() bool { return v.conn.seq.Load() != uint64(v.now)-1 }

// TestDeniedFromMemory has two instances check the same keys, one of which caches
// denials. Its verdicts are those of the local store, which makes the same checks,
// and its retries are never longer.
func TestDeniedFromMemory(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	caching := newVirtualShared(t, srv, v)
	caching.recall()
	local := &memory.Store{Clock: v.clock}
	r := storestest.Seeded(t)
	fromCache, denied := 0, 0
	for round := range storestest.Operations(t) / 200 {
		zones := randomZones(t, r, fmt.Sprint("d", round), false, false)
		if round == 0 { // one of whose denials some are certain to be cached
			c := [2]*stores.Counter{storestest.TenPerHour(t, "d", false)}
			c[1] = c[0]
			zones = []zoneTrace{{algorithms: []string{"FixedWindow"}, counters: c, local: localCounters(c)}}
		}
		tr := &trace{t: t, v: v, r: r, zones: zones}
		v.now = 1_700_000_000_000_000 + r.Int64N(1_000_000)
		for step := range 200 {
			tr.advance()
			key, cost := uint64(1+r.IntN(2)), 1+r.Int64N(3)*r.Int64N(2)
			check, same := checkOf(zones, 0, key, cost)
			v.tick()
			if other := step%3 == 0; other {
				caching.askAlways() // as another instance
				caching.Decide(context.Background(), check)
				caching.recall()
			} else {
				caching.Decide(context.Background(), check)
			}
			local.Decide(context.Background(), same)
			if check.Admitted != same.Admitted || check.Mode != stores.ModeShared {
				t.Fatalf("round %d step %d: admitted %v in mode %v, the local store %v", round, step, check.Admitted, check.Mode, same.Admitted)
			}
			if !check.Admitted {
				denied++
				if !v.called() {
					fromCache++
				}
				if x, y := longestRetry(check), longestRetry(same); x > y && y != algorithms.Never || x == 0 && y > 0 {
					t.Fatalf("round %d step %d: denied for %d, want at most %d", round, step, x, y)
				}
			}
			for i := range check.Zones {
				for _, res := range same.Zones[i].Results {
					tr.edges = append(tr.edges, v.now+max(0, res.Retry), v.now+res.Reset)
				}
				if permit, _ := check.Zones[i].Holds(); permit && check.Zones[i].Charged {
					v.tick()
					caching.Finish(context.Background(), &check.Zones[i], 0)
					local.Finish(context.Background(), &same.Zones[i], 0)
				}
			}
			tr.edges = tr.edges[max(0, len(tr.edges)-20):]
		}
	}
	t.Logf("%d denials, %d of them from the cache", denied, fromCache)
	if fromCache == 0 { // a tenth in most runs
		t.Errorf("none of %d denials from the cache", denied)
	}
}

// longestRetry returns the longest retry of the zones that are no shadows, or
// Never.
func longestRetry(check *stores.Check) (retry int64) {
	for i := range check.Zones {
		if check.Zones[i].Shadow {
			continue
		}
		for _, res := range check.Zones[i].Results {
			if res.Retry == algorithms.Never {
				return algorithms.Never
			}
			retry = max(retry, res.Retry)
		}
	}
	return retry
}

// TestShadowDenialIsNotRemembered has a shadow deny for longer than the live zone.
// The denial of the shadow is not cached.
func TestShadowDenialIsNotRemembered(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storestest.Hour}
	s := newVirtualShared(t, srv, v)
	s.recall()
	live := storestest.NewTestCounter(t, "live", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1, Window: 1000, Cost: 1}})
	shadow := storestest.NewTestCounter(t, "shadow", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1, Window: storestest.Hour, Cost: 1}})
	for i, admitted := range []bool{true, false, false, true} {
		v.now = storestest.Hour + []int64{0, 1, 999, 1000}[i]
		check := storestest.CheckOf(1, live, shadow)
		check.Zones[1].Shadow = true
		v.tick()
		if s.Decide(context.Background(), check); check.Admitted != admitted || v.called() != (i != 2) {
			t.Errorf("check %d: admitted %v, called Redis %v", i, check.Admitted, v.called())
		}
	}
}

// TestDenialsWithPermitsAreNotRemembered denies checks of zones that hold permits or
// costs: Redis decides each of them.
func TestDenialsWithPermitsAreNotRemembered(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storestest.Hour}
	s := newVirtualShared(t, srv, v)
	s.recall()
	sp := algorithms.Spec{Limit: 1, Window: storestest.Hour, Cost: 1}
	permits := storestest.NewTestCounter(t, "permits", 5, false, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	costs := storestest.NewTestCounter(t, "costs", 0, true, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	plain := storestest.NewTestCounter(t, "plain", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	for i := range 4 {
		for _, zones := range [][]*stores.Counter{{permits}, {costs}, {plain, permits}} {
			v.now++
			v.tick()
			check := storestest.CheckOf(1, zones...)
			if s.Decide(context.Background(), check); check.Admitted != (i == 0 && len(zones) == 1) || !v.called() {
				t.Errorf("%s, check %d: admitted %v, called Redis %v", zones[0].Zone, i, check.Admitted, v.called())
			}
		}
		v.tick()
		s.Decide(context.Background(), storestest.CheckOf(1, plain))
	}
}

// TestDenialsAreForgotten changes, after a denial, what its validity depends on.
// Redis decides the next check. Without a change, or for a higher cost, the denial
// is returned from the cache.
func TestDenialsAreForgotten(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	s := newVirtualShared(t, srv, v)
	s.Observe(silent{})
	s.recall()
	c := storestest.TenPerHour(t, "forget", false)
	decide := func(cost int64) (check *stores.Check, called bool) {
		check = storestest.CheckOf(cost, c)
		v.now++
		v.tick()
		s.Decide(context.Background(), check)
		return check, v.called()
	}
	v.now = storestest.Hour
	decide(9)
	for name, change := range map[string]func() (cost int64){
		"nothing":    func() int64 { return 2 },
		"more cost":  func() int64 { return 3 },
		"never":      func() int64 { return 11 },
		"less cost":  func() int64 { return 1 },
		"time":       func() int64 { v.now += deniedLasts; return 2 },
		"connection": func() int64 { s.reconnect(); return 2 },
		"failure": func() int64 {
			s.failCall()
			s.markUp()
			return 2
		},
		"reset": func() int64 {
			s.ResetLocal([]*stores.Counter{c}, stores.Key{Hi: 1, Lo: 1})
			v.client.Del(context.Background(), namesOf("diana", &storestest.CheckOf(1, c).Zones[0])...)
			return 2
		},
	} {
		s.ResetLocal([]*stores.Counter{c}, stores.Key{Hi: 1, Lo: 1})
		s.skipRamp()
		if check, called := decide(2); check.Admitted || !called {
			t.Fatalf("%s: admitted %v, called Redis %v, before the change", name, check.Admitted, called)
		}
		cost := change()
		s.skipRamp()
		cached := name == "nothing" || name == "more cost" || name == "never"
		check, called := decide(cost)
		if called == cached {
			t.Errorf("%s: called Redis %v", name, called)
		}
		if admitted := name == "less cost" || name == "reset"; check.Admitted != admitted {
			t.Errorf("%s: admitted %v", name, check.Admitted)
		}
		if never := check.Zones[0].Results[0].Retry == algorithms.Never; never != (name == "never") {
			t.Errorf("%s: retry %d", name, check.Zones[0].Results[0].Retry)
		}
		v.client.FlushDB(context.Background())
		s.ResetLocal([]*stores.Counter{c}, stores.Key{Hi: 1, Lo: 1})
		decide(9)
	}
}
