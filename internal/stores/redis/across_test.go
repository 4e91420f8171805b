package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestDenialHasResultsOfAllStores has the first of two stores deny. The second
// only peeks: it reports its results, and its state does not change.
func TestDenialHasResultsOfAllStores(t *testing.T) {
	srv := redistest.Start(t)
	shared := newTestShared(t, srv, func() int64 { return storekit.Hour })
	for name, second := range map[string]stores.Store{"local": &memory.Store{Clock: func() int64 { return storekit.Hour }}, "redis": shared} {
		for _, inFlight := range []int64{0, 2} {
			full := kit.TenPerHour(t, "full", false)
			open := kit.NewTestCounter(t, fmt.Sprintf("open-%s-%d", name, inFlight), inFlight, false, nil,
				storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 20, Window: storekit.Hour, Cost: 1}})
			of := []stores.Store{&memory.Store{Clock: func() int64 { return storekit.Hour }}, second}
			check := storekit.CheckOf(4, full, open)
			stores.Across(context.Background(), check, of)
			second.Finish(context.Background(), &check.Zones[1], 0) // release the permit
			for range 2 {
				check := storekit.CheckOf(7, full, open)
				stores.Across(context.Background(), check, of)
				first, peeked := check.Zones[0], check.Zones[1]
				if check.Admitted || first.Admits || first.Charged || first.Results[0].Remaining != 6 {
					t.Errorf("%s, in flight %d: %+v; want a denial with Remaining 6", name, inFlight, first)
				}
				if !peeked.Admits || peeked.Charged || len(peeked.Results) != 1 || peeked.Results[0].Remaining != 16 {
					t.Errorf("%s, in flight %d: %+v; want that it admits, with Remaining 16", name, inFlight, peeked)
				}
			}
			b := storekit.CheckOf(16, open)
			if second.Decide(context.Background(), b); !b.Admitted {
				t.Errorf("%s, in flight %d: the peek charged, or acquired a permit", name, inFlight)
			}
		}
	}
}

// TestReleasedCostIsNotUsed has the second of two stores deny what the first admits. The first
// reports what is left, and when more would be, without the cost that it held meanwhile.
func TestReleasedCostIsNotUsed(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{now: storekit.Hour, client: srv.Client()}
	spec := storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}}
	for name, first := range map[string]stores.Store{"local": &memory.Store{Clock: v.clock}, "redis": newVirtualShared(t, srv, v)} {
		open, full := kit.NewTestCounter(t, name, 0, false, nil, spec), kit.TenPerHour(t, "full", false)
		second := &memory.Store{Clock: v.clock}
		second.Decide(t.Context(), storekit.CheckOf(8, full))
		v.tick()
		first.Decide(t.Context(), storekit.CheckOf(4, open))
		check := storekit.CheckOf(3, open, full)
		check.Zones[0].WantsMore = true
		v.tick()
		stores.Across(t.Context(), check, []stores.Store{first, second})
		if res := check.Zones[0].Results[0]; check.Admitted || res.Remaining != 6 || res.More != storekit.Hour/10 {
			t.Errorf("%s: admitted %v, %d left and more in %d; want a denial, 6 and %d", name, check.Admitted, res.Remaining, res.More, storekit.Hour/10)
		}
	}
}

// TestFallbackEnforcesShare decides without Redis. The instance admits its share
// of the limit, by the number of instances that was last counted or is configured.
func TestFallbackEnforcesShare(t *testing.T) {
	for _, c := range []struct{ live, configured, want int64 }{{0, 0, 10}, {5, 0, 2}, {5, 2e6, 5}} {
		s := New(Options{Name: "away", Clock: func() int64 { return storekit.Hour }, ShareOf: c.configured}, silent{})
		s.start.Do(func() {}) // it has no connection
		s.setInstances(c.live)
		counter, admitted := kit.TenPerHour(t, "share", false), int64(0)
		for check := storekit.CheckOf(1, counter); ; check = storekit.CheckOf(1, counter) {
			s.Decide(context.Background(), check)
			if check.Mode != stores.ModeFallback {
				t.Fatalf("mode %v", check.Mode)
			}
			if !check.Admitted {
				break
			}
			admitted++
		}
		if admitted != c.want {
			t.Errorf("%d instances counted, %d millionths configured: %d of 10 admitted, want %d", c.live, c.configured, admitted, c.want)
		}
	}
}

// TestFallbackPermit acquires a permit without Redis and releases it after Redis
// is available again: in this process, where it was acquired.
func TestFallbackPermit(t *testing.T) {
	s := newTestShared(t, redistest.Start(t), func() int64 { return storekit.Hour })
	s.Observe(silent{})
	counter := kit.NewTestCounter(t, "fallback", 1, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
	first, second := storekit.CheckOf(1, counter), storekit.CheckOf(1, counter)
	s.fallback.Decide(first, nil)
	s.Finish(context.Background(), &first.Zones[0], 0)
	if s.fallback.Decide(second, nil); !second.Admitted {
		t.Error("the permit was not released")
	}
}

// TestEstimateIsCutAnew has a request wait that was denied by an instance alone, which cuts its
// estimate to a share. When Redis decides it, the request holds what Redis can admit.
func TestEstimateIsCutAnew(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 2)
	c, k := kit.TenPerHour(t, "estimate", true), stores.Key{Hi: 1, Lo: 1}
	c.Estimated = true
	f.all[0].markDown()
	held := f.decide(0, c, k, 10)
	waits := f.decide(0, c, k, 10)
	if waits.Admitted || waits.Mode != stores.ModeFallback {
		t.Fatalf("%+v", waits)
	}
	f.all[0].Finish(context.Background(), &held.Zones[0], 0)
	f.all[0].markUp()
	f.all[0].skipRamp()
	f.all[0].setTime(f.v.now)
	if f.all[0].Decide(context.Background(), waits); !waits.Admitted || waits.Mode != stores.ModeShared {
		t.Fatalf("%+v", waits)
	}
	if f.decide(1, c, k, 1).Admitted {
		t.Errorf("another is admitted while an estimate of 10 of 10 is held as %d", waits.Zones[0].Cost)
	}
}

// verdictObserver counts the reports of verdicts that differ.
type verdictObserver struct {
	noObserver
	reports int
}

func (w *verdictObserver) StoreError(_ string, f stores.Failure, _ error) {
	if f == stores.FailWrong {
		w.reports++
	}
}

// changeScript replaces a text in the script that the store runs.
func changeScript(t *testing.T, s *Store, from, to string) {
	t.Helper()
	if !strings.Contains(s.conn.script.text, from) {
		t.Fatalf("the script does not contain %q", from)
	}
	s.conn.script = newScript(strings.ReplaceAll(s.conn.script.text, from, to), "")
}

// TestRedisVerdictStands runs a script that denies what the rules admit. The
// verdict of Redis is used, because it decided what Redis charged, and the
// difference is reported.
func TestRedisVerdictStands(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{now: storekit.Hour, client: srv.Client()}
	s := newVirtualShared(t, srv, v)
	changeScript(t, s, "if stepped then break end", "if stepped then break end ok = false")
	w := new(verdictObserver)
	s.Observe(w)
	check := storekit.CheckOf(1, kit.TenPerHour(t, "differ", false))
	v.tick()
	if s.Decide(context.Background(), check); check.Admitted || check.Mode != stores.ModeShared || w.reports != 1 {
		t.Errorf("admitted %v, mode %v, %d reports; want Redis' denial and one report", check.Admitted, check.Mode, w.reports)
	}
}
