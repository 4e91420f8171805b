package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestShadowDenialAsksRedis has a shadow deny for longer than the live zone. While only the shadow
// denies, Redis is asked.
func TestShadowDenialAsksRedis(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storekit.Hour}
	s := newVirtualShared(t, srv, v)
	s.recall()
	live := kit.NewTestCounter(t, "live", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1, Window: 1000, Cost: 1}})
	shadow := kit.NewTestCounter(t, "shadow", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1, Window: storekit.Hour, Cost: 1}})
	for i, admitted := range []bool{true, false, false, true} {
		v.now = storekit.Hour + []int64{0, 1, 999, 1000}[i]
		check := storekit.CheckOf(1, live, shadow)
		check.Shadows = 1
		v.tick()
		if s.Decide(context.Background(), check); check.Admitted != admitted || v.called() != (i != 2) {
			t.Errorf("check %d: admitted %v, called Redis %v", i, check.Admitted, v.called())
		}
	}
}

// TestDenialsWithPermitsAskRedis denies checks of zones that hold permits or
// costs: Redis decides each of them.
func TestDenialsWithPermitsAskRedis(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storekit.Hour}
	s := newVirtualShared(t, srv, v)
	s.recall()
	sp := algorithms.Spec{Limit: 1, Window: storekit.Hour, Cost: 1}
	permits := kit.NewTestCounter(t, "permits", 5, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	costs := kit.NewTestCounter(t, "costs", 0, true, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	plain := kit.NewTestCounter(t, "plain", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	for i := range 4 {
		for _, zones := range [][]*stores.Counter{{permits}, {costs}, {plain, permits}} {
			v.now++
			v.tick()
			check := storekit.CheckOf(1, zones...)
			if s.Decide(context.Background(), check); check.Admitted != (i == 0 && len(zones) == 1) || !v.called() {
				t.Errorf("%s, check %d: admitted %v, called Redis %v", zones[0].Zone, i, check.Admitted, v.called())
			}
		}
		v.tick()
		s.Decide(context.Background(), storekit.CheckOf(1, plain))
	}
}

// TestDenialsAskAfterAChange changes, after a denial, what the next one without a call depends on.
// Redis decides the next check. Without a change, or for a higher cost, it is denied without a call.
func TestDenialsAskAfterAChange(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	s := newVirtualShared(t, srv, v)
	s.Observe(silent{})
	s.recall()
	c := kit.TenPerHour(t, "forget", false)
	decide := func(cost int64) (check *stores.Check, called bool) {
		check = storekit.CheckOf(cost, c)
		v.now++
		v.tick()
		s.Decide(context.Background(), check)
		return check, v.called()
	}
	v.now = storekit.Hour
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
			v.client.Del(context.Background(), namesOf("diana", &storekit.CheckOf(1, c).Zones[0])...)
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
		uncalled := name == "nothing" || name == "more cost" || name == "never"
		check, called := decide(cost)
		if called == uncalled {
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

// TestDenialsAskAfterAForwardStep has Redis asked for a key whose wait is over by Redis' clock, which was set
// forward, as another key's reply has shown.
func TestDenialsAskAfterAForwardStep(t *testing.T) {
	r := newRecalling(t, redistest.Start(t), "step")
	for range 2 { // the second is denied
		r.ask(stores.ZoneCheck{Counter: r.c, Cost: 10})
	}
	if _, called := r.ask(stores.ZoneCheck{Counter: r.c, Cost: 10}); called {
		t.Fatal("a denial calls Redis")
	}
	r.v.conn.seq.Store(uint64(r.v.now + 2*storekit.Hour))
	r.decides(storekit.CheckOfKey(r.c, 7))
	if _, called := r.ask(stores.ZoneCheck{Counter: r.c, Cost: 10}); !called {
		t.Error("a key is denied without a call after Redis' clock was set forward")
	}
}
