package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// twoStores is a store in Redis that denies without a call, and a local store with the same rules.
type twoStores struct {
	v             *virtual
	shared        *Store
	local         *memory.Store
	zones         [2][]*stores.Counter // of the shared store, and of the local one
	last          [2]*stores.Check     // decided by both
	called, total int                  // denials that called Redis, and all
}

func newTwoStores(t *testing.T, srv *redistest.Server, name string, zones ...[]storekit.RuleSpec) *twoStores {
	t.Helper()
	v := &virtual{client: srv.Client(), now: 1_700_000_000_000_000}
	s := &twoStores{v: v, shared: newVirtualShared(t, srv, v), local: &memory.Store{Clock: v.clock}}
	s.shared.recall()
	for i, specs := range zones {
		for of := range s.zones {
			s.zones[of] = append(s.zones[of], kit.NewTestCounter(t, fmt.Sprint(name, i), 0, false, nil, specs...))
		}
	}
	return s
}

// decide decides a check in both stores, and compares all that they answer. The first zone counts all
// users together.
func (s *twoStores) decide(t *testing.T, what string, user uint64, cost int64) *stores.Check {
	t.Helper()
	var checks [2]*stores.Check
	for of := range checks {
		checks[of] = new(stores.Check)
		for i, c := range s.zones[of] {
			k := stores.Key{Hi: user, Lo: 7}
			if i == 0 {
				k.Hi = 1 << 32
			}
			z := stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k, Tag: stores.Key{Lo: 9}}, Cost: cost, WantsMore: true}
			checks[of].Zones = append(checks[of].Zones, z)
		}
	}
	s.v.tick()
	s.shared.Decide(context.Background(), checks[0])
	s.local.Decide(context.Background(), checks[1])
	compareChecks(t, what, checks[0], checks[1])
	s.last = checks
	if !checks[0].Admitted {
		if s.total++; s.v.called() {
			s.called++
		}
	}
	return checks[0]
}

// charge charges a zone of the last check once its response has told a cost.
func (s *twoStores) charge(zone int, cost int64) {
	s.v.tick()
	s.shared.Finish(context.Background(), &s.last[0].Zones[zone], cost)
	s.local.Finish(context.Background(), &s.last[1].Zones[zone], cost)
}

// TestDenialsNameTheRightRule has other users use up a limit for all while one user is denied without
// a call, and other costs of one user denied by other rules than the first.
func TestDenialsNameTheRightRule(t *testing.T) {
	srv := redistest.Start(t)
	rule := func(a algorithms.Algorithm, limit, window int64) []storekit.RuleSpec {
		return []storekit.RuleSpec{{Alg: a, Spec: algorithms.Spec{Limit: limit, Window: window, Cost: 1}}}
	}
	const minute = storekit.Hour / 60
	for name, a := range map[string]algorithms.Algorithm{"fixed_window": &algorithms.FixedWindow{}, "sliding_log": &algorithms.SlidingLog{}, "sliding_window": &algorithms.SlidingWindow{}, "gcra": &algorithms.GCRA{Burst: 3}} {
		s := newTwoStores(t, srv, "all-"+name, rule(a, 3, storekit.Hour), rule(a, 1, minute))
		for _, user := range []uint64{1, 1, 1, 2, 3, 1, 1, 2, 4} {
			s.v.now += 1000
			s.decide(t, fmt.Sprint(name, ", user ", user), user, 1)
		}
		if s.called == s.total {
			t.Errorf("%s: each of %d denials called Redis", name, s.total)
		}
		s = newTwoStores(t, srv, "costs-"+name, append(rule(a, 8, storekit.Hour), rule(a, 6, minute)...))
		for _, cost := range []int64{6, 1, 5, 2, 3, 1, 9, 7, 5} {
			s.v.now += 1000
			s.decide(t, fmt.Sprint(name, ", cost ", cost), 1, cost)
		}
		if s.called == s.total && name != "gcra" {
			t.Errorf("%s: each of %d denials for costs called Redis", name, s.total)
		}
	}
}

// TestRecalledDenialsAreExact decides random checks of several users who share a zone, some of which cost more after
// their responses. Each answer is that of the local store, whether Redis was called or not.
func TestRecalledDenialsAreExact(t *testing.T) {
	srv := redistest.Start(t)
	r := storekit.Seeded(t)
	called, total := 0, 0
	for round := range storekit.Operations(t) / 200 {
		var zones [][]storekit.RuleSpec
		for range 1 + r.IntN(3) {
			zones = append(zones, []storekit.RuleSpec{storekit.RandomRule(r, false, false)})
			if r.IntN(2) == 0 {
				zones[len(zones)-1] = append(zones[len(zones)-1], storekit.RandomRule(r, false, false))
			}
		}
		s := newTwoStores(t, srv, fmt.Sprint("exact", round), zones...)
		for step := range 200 {
			s.v.now += r.Int64N(1 + r.Int64N(400_000))
			s.decide(t, fmt.Sprintf("round %d step %d", round, step), 1+r.Uint64N(3), 1+r.Int64N(3)*r.Int64N(2))
			if s.last[0].Admitted && r.IntN(4) == 0 {
				s.charge(r.IntN(len(zones)), 1+r.Int64N(3))
			}
			if t.Failed() {
				t.Fatalf("%+v", zones)
			}
		}
		called, total = called+s.called, total+s.total
	}
	if t.Logf("%d of %d denials called Redis", called, total); called == total {
		t.Errorf("each of %d denials called Redis", total)
	}
}
