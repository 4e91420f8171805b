package redis

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// asked says whether the last decision came to Redis: its time is the number of
// its call.
func (v *virtual) asked() bool { return v.conn.seq.Load() != uint64(v.now)-1 }

// TestDeniedFromMemory has two instances check the same keys, one of which
// remembers denials. Its verdicts are those of the local store, which sees all
// charges, and its retries are never too long.
func TestDeniedFromMemory(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	remembers := newVirtualShared(t, srv, v)
	remembers.decider.denials = remembers.resets.denials
	local := &memory.Store{Clock: v.clock}
	r := storestest.Seeded(t)
	saved, denied := 0, 0
	for round := range storestest.Operations(t, 10_000) / 200 {
		zones := randomZones(t, r, fmt.Sprint("d", round), false, false)
		tr := &trace{t: t, v: v, r: r, zones: zones}
		v.now = 1_700_000_000_000_000 + r.Int64N(1_000_000)
		for step := range 200 {
			tr.pass()
			key, cost := uint64(1+r.IntN(2)), 1+r.Int64N(3)*r.Int64N(2)
			check, b := askOf(zones, 0, key, cost), askOf(zones, 0, key, cost)
			v.tick()
			if other := step%3 == 0; other {
				memory := remembers.decider.denials
				remembers.decider.denials = nil // is another instance, that is
				remembers.Decide(context.Background(), check)
				remembers.decider.denials = memory
			} else {
				remembers.Decide(context.Background(), check)
			}
			local.Decide(context.Background(), b)
			if check.Admitted != b.Admitted || check.Mode != stores.ModeShared {
				t.Fatalf("round %d step %d: admitted %v in mode %v, the local store says %v", round, step, check.Admitted, check.Mode, b.Admitted)
			}
			if !check.Admitted {
				denied++
				if !v.asked() {
					saved++
				}
				if x, y := longestRetry(check), longestRetry(b); x > y && y != algorithms.Never || x == 0 && y > 0 {
					t.Fatalf("round %d step %d: denied for %d, want at most %d", round, step, x, y)
				}
			}
			for i := range check.Zones {
				for _, res := range b.Zones[i].Results {
					tr.hints = append(tr.hints, v.now+max(0, res.Retry), v.now+res.Reset)
				}
				if place, _ := check.Zones[i].Holds(); place && check.Zones[i].Charged {
					v.tick()
					remembers.Finish(context.Background(), &check.Zones[i], 0)
					local.Finish(context.Background(), &b.Zones[i], 0)
				}
			}
			tr.hints = tr.hints[max(0, len(tr.hints)-20):]
		}
	}
	t.Logf("%d denials, %d of them from memory", denied, saved)
	if saved < denied/20 {
		t.Errorf("%d of %d denials were from memory", saved, denied)
	}
}

// longestRetry is that of the live items' rules, or Never.
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

// TestShadowDenialIsNotRemembered has a shadow deny for longer than the live
// zone. Its denial denies no request.
func TestShadowDenialIsNotRemembered(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storestest.Hour}
	s := newVirtualShared(t, srv, v)
	s.decider.denials = s.resets.denials
	live := storestest.NewTestCounter(t, "live", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1, Window: 1000, Cost: 1}})
	shadow := storestest.NewTestCounter(t, "shadow", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1, Window: storestest.Hour, Cost: 1}})
	for i, admitted := range []bool{true, false, false, true} {
		v.now = storestest.Hour + []int64{0, 1, 999, 1000}[i]
		check := storestest.Items(1, live, shadow)
		check.Zones[1].Shadow = true
		v.tick()
		if s.Decide(context.Background(), check); check.Admitted != admitted || v.asked() != (i != 2) {
			t.Errorf("ask %d: admitted %v, asked %v", i, check.Admitted, v.asked())
		}
	}
}

// TestDenialsWithPermitsAreNotRemembered denies requests of zones with permits:
// all of them are decided by Redis.
func TestDenialsWithPermitsAreNotRemembered(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: storestest.Hour}
	s := newVirtualShared(t, srv, v)
	s.decider.denials = s.resets.denials
	sp := algorithms.Spec{Limit: 1, Window: storestest.Hour, Cost: 1}
	places := storestest.NewTestCounter(t, "places", 5, false, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	costs := storestest.NewTestCounter(t, "costs", 0, true, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	for i := range 4 {
		for _, c := range []*stores.Counter{places, costs} {
			v.tick()
			check := storestest.Items(1, c)
			if s.Decide(context.Background(), check); check.Admitted != (i == 0) || !v.asked() {
				t.Errorf("%s, ask %d: admitted %v, asked %v", c.Zone, i, check.Admitted, v.asked())
			}
		}
	}
}

// TestDenialsAreForgotten changes, after a denial, what it depends on. The next
// check is decided by Redis.
func TestDenialsAreForgotten(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	s := newVirtualShared(t, srv, v)
	s.Observe(ignoring{})
	s.decider.denials = s.resets.denials
	c := storestest.TenAnHour(t, "forget", false)
	ask := func(cost int64) (check *stores.Check, asked bool) {
		check = storestest.Items(cost, c)
		v.tick()
		s.Decide(context.Background(), check)
		return check, v.asked()
	}
	v.now = storestest.Hour
	ask(9)
	for name, change := range map[string]func() (cost int64){
		"nothing":    func() int64 { return 2 },
		"more cost":  func() int64 { return 3 },
		"never":      func() int64 { return 11 },
		"less cost":  func() int64 { return 1 },
		"time":       func() int64 { v.now += denialLasts; return 2 },
		"connection": func() int64 { s.conn.tracker.opened.Add(1); return 2 },
		"failure":    func() int64 { s.conn.fail(errors.New("gone")); s.breaker.close(s.breaker.opened.Load()); return 2 },
		"reset": func() int64 {
			s.ResetLocal([]*stores.Counter{c}, stores.Key{Hi: 1, Lo: 1})
			v.client.Del(context.Background(), namesOf("diana", &storestest.Items(1, c).Zones[0])...)
			return 2
		},
	} {
		s.ResetLocal([]*stores.Counter{c}, stores.Key{Hi: 1, Lo: 1})
		s.fallback.back.Store(0)
		if check, asked := ask(2); check.Admitted || !asked {
			t.Fatalf("%s: admitted %v, asked %v before", name, check.Admitted, asked)
		}
		cost := change()
		s.fallback.back.Store(0)
		memory := name == "nothing" || name == "more cost" || name == "never"
		check, asked := ask(cost)
		if asked == memory {
			t.Errorf("%s: asked %v", name, asked)
		}
		if admitted := name == "less cost" || name == "reset"; check.Admitted != admitted {
			t.Errorf("%s: admitted %v", name, check.Admitted)
		}
		if never := check.Zones[0].Results[0].Retry == algorithms.Never; never != (name == "never") {
			t.Errorf("%s: retry %d", name, check.Zones[0].Results[0].Retry)
		}
		v.client.FlushDB(context.Background())
		s.decider.denials.clear()
		ask(9)
	}
}
