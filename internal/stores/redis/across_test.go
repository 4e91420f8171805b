package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestDenialHasResultsOfAllStores denies in the first of two stores. The second
// only peeks: it reports its results, and its state does not change.
func TestDenialHasResultsOfAllStores(t *testing.T) {
	srv := redistest.Start(t)
	shared := newTestShared(t, srv, func() int64 { return storestest.Hour })
	for name, second := range map[string]stores.Store{"local": &memory.Store{Clock: func() int64 { return storestest.Hour }}, "redis": shared} {
		for _, inFlight := range []int64{0, 2} {
			full := storestest.TenAnHour(t, "full", false)
			open := storestest.NewTestCounter(t, fmt.Sprintf("open-%s-%d", name, inFlight), inFlight, false, nil,
				storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 20, Window: storestest.Hour, Cost: 1}})
			of := []stores.Store{&memory.Store{Clock: func() int64 { return storestest.Hour }}, second}
			check := storestest.Items(4, full, open)
			stores.Across(context.Background(), check, of)
			second.Finish(context.Background(), &check.Zones[1], 0) // an answered request's place
			for range 2 {
				check := storestest.Items(7, full, open)
				stores.Across(context.Background(), check, of)
				first, looked := check.Zones[0], check.Zones[1]
				if check.Admitted || first.Admits || first.Charged || first.Results[0].Remaining != 6 {
					t.Errorf("%s, in flight %d: %+v; want a denial that says 6 are left", name, inFlight, first)
				}
				if !looked.Admits || looked.Charged || len(looked.Results) != 1 || looked.Results[0].Remaining != 16 {
					t.Errorf("%s, in flight %d: %+v; want that it would admit, and that 16 are left", name, inFlight, looked)
				}
			}
			b := storestest.Items(16, open)
			if second.Decide(context.Background(), b); !b.Admitted {
				t.Errorf("%s, in flight %d: what was only looked at was charged, or its place taken", name, inFlight)
			}
		}
	}
}

// TestFallbackEnforcesShare decides without Redis. The instance admits its
// share of the limit: of as many instances as were last seen, or as many as are
// configured.
func TestFallbackEnforcesShare(t *testing.T) {
	for _, c := range []struct{ live, told, want int64 }{{0, 0, 10}, {5, 0, 2}, {5, 2e6, 5}} {
		s := New(Options{Name: "away", Clock: func() int64 { return storestest.Hour }, ShareOf: c.told}, ignoring{})
		s.start.Do(func() {}) // it has no connection
		s.instances.live.Store(c.live)
		counter, passed := storestest.TenAnHour(t, "share", false), int64(0)
		for check := storestest.Items(1, counter); ; check = storestest.Items(1, counter) {
			s.Decide(context.Background(), check)
			if check.Mode != stores.ModeFallback {
				t.Fatalf("mode %v", check.Mode)
			}
			if !check.Admitted {
				break
			}
			passed++
		}
		if passed != c.want {
			t.Errorf("of %d instances, told of %d millionths, it admits %d of 10, want %d", c.live, c.told, passed, c.want)
		}
	}
}

// TestFallbackPermit takes a permit without Redis and releases it after Redis
// is available again: in this process, where it was taken.
func TestFallbackPermit(t *testing.T) {
	s := newTestShared(t, redistest.Start(t), func() int64 { return storestest.Hour })
	s.Observe(ignoring{})
	counter := storestest.NewTestCounter(t, "alone", 1, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storestest.Hour, Cost: 1}})
	first, second := storestest.Items(1, counter), storestest.Items(1, counter)
	s.fallback.decide(first, false)
	s.Finish(context.Background(), &first.Zones[0], 0)
	if s.fallback.decide(second, false); !second.Admitted {
		t.Error("the place of an answered request is not free")
	}
}

// verdictWatcher counts the verdicts that differ.
type verdictWatcher struct {
	ignoring
	wrong int
}

func (w *verdictWatcher) StoreError(_ string, f Failure, _ error) {
	if f == FailWrong {
		w.wrong++
	}
}

// runChanged has the store run the script with a change wherever a text stands in it.
func (v *virtual) runChanged(t *testing.T, s *Store, from, to string) {
	t.Helper()
	if !strings.Contains(s.conn.script, from) {
		t.Fatalf("the script does not hold %q", from)
	}
	s.conn.setScript(strings.ReplaceAll(s.conn.script, from, to))
}

// TestRedisVerdictStands runs a script that denies what the rules admit. The
// verdict of Redis stands, because Redis has charged by it, and the difference
// is reported.
func TestRedisVerdictStands(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{now: storestest.Hour, client: srv.Client()}
	s := newVirtualShared(t, srv, v)
	v.runChanged(t, s, "if rule_ok then", "rule_ok = false if rule_ok then")
	w := new(verdictWatcher)
	s.Observe(w)
	check := storestest.Items(1, storestest.TenAnHour(t, "differ", false))
	v.tick()
	if s.Decide(context.Background(), check); check.Admitted || check.Mode != stores.ModeShared || w.wrong != 1 {
		t.Errorf("admitted %v, mode %v, told %d times; want Redis' denial, told once", check.Admitted, check.Mode, w.wrong)
	}
}
