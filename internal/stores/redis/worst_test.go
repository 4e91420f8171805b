package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// attack makes checks at the times that are most likely to exceed a bound: many at
// one instant, exactly when a retry has elapsed, and at the edges of windows.
// decide decides a check of a cost at an instant, and returns whether it was
// admitted and its retry.
func attack(r *rand.Rand, v storekit.Victim, checks int, decide func(at, cost int64) (bool, int64)) []storekit.Charge {
	var charges []storekit.Charge
	w := v.Spec.Spec.Window
	now := 1_700_000_000_000_000 + r.Int64N(w)
	patience := r.IntN(3) // how often time passes after an admitted check
	for range checks {
		cost := int64(1)
		if r.IntN(3) == 0 {
			cost += r.Int64N(3)
		}
		ok, retry := decide(now, cost)
		if ok {
			charges = append(charges, storekit.Charge{At: now, Cost: cost})
		}
		switch {
		case ok && r.IntN(4) >= patience:
		case !ok && r.IntN(3) > 0:
			now += max(0, retry)
		default:
			now += []int64{0, 1, w - 1, w, w - now%w, w - now%w - 1, r.Int64N(w), r.Int64N(2*w + 1)}[r.IntN(8)]
		}
	}
	return charges
}

// site is a store under attack, or several that share a Redis.
type site struct {
	name  string
	store func(r *rand.Rand) stores.Store
}

// TestWorstWindows attacks every algorithm in the local store, in Redis, and through
// three instances. No window exceeds the bound; the worst windows are logged.
func TestWorstWindows(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	local := &memory.Store{Clock: v.clock}
	var shared []*Store
	for range 3 {
		shared = append(shared, newVirtualShared(t, srv, v))
	}
	sites := []site{
		{"local", func(*rand.Rand) stores.Store { return local }},
		{"redis", func(*rand.Rand) stores.Store { return shared[0] }},
		{"three instances", func(r *rand.Rand) stores.Store { return shared[r.IntN(3)] }},
	}
	r := storekit.Seeded(t)
	worst := make(map[string]string)
	closest := make(map[string][2]float64) // part of the bound, and the bound: the larger one is preferred
	budget := storekit.Operations(t)
	for trial := 0; budget > 0; trial++ {
		for name, vic := range storekit.Victims(r) {
			for i, s := range sites {
				c := kit.NewTestCounter(t, fmt.Sprintf("w%d-%d", trial, i), 0, false, nil, vic.Spec)
				checks := 60
				budget -= checks
				charges := attack(r, vic, checks, func(at, cost int64) (bool, int64) { return decideAt(v, s.store(r), shared, c, at, cost) })
				found := storekit.WorstWindow(charges, vic.Spec.Spec.Window)
				if found > vic.Bound {
					t.Errorf("%s, %s: %d in a window of %d, bound %d: %+v %+v", name, s.name, found, vic.Spec.Spec.Window, vic.Bound, vic.Spec.Alg, vic.Spec.Spec)
				}
				key := name + "/" + s.name
				end := [2]float64{float64(found) / float64(vic.Bound), float64(vic.Bound)}
				if was := closest[key]; slices.Compare(end[:], was[:]) > 0 {
					closest[key], worst[key] = end, fmt.Sprintf("%d of %d", found, vic.Bound)
				}
			}
		}
		v.flush(t)
	}
	printWorst(t, worst, sites)
}

// decideAt decides a check in a store at an instant.
func decideAt(v *virtual, s stores.Store, shared []*Store, c *stores.Counter, at, cost int64) (bool, int64) {
	v.now = at
	for _, sh := range shared {
		sh.setTime(at)
	}
	k := stores.Key{Hi: 1, Lo: 2}
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: cost}}}
	s.Decide(context.Background(), check)
	var retry int64
	for _, res := range check.Zones[0].Results {
		retry = max(retry, res.Retry)
	}
	return check.Admitted, retry
}

func printWorst(t *testing.T, worst map[string]string, sites []site) {
	t.Helper()
	var b strings.Builder
	b.WriteString("worst windows, of the bound:\n| algorithm |")
	for _, s := range sites {
		b.WriteString(" " + s.name + " |")
	}
	for _, name := range []string{"fixed_window", "fixed_window align", "sliding_log", "sliding_window", "gcra", "token_bucket", "token_bucket step", "leaky_bucket nodelay", "leaky_bucket"} {
		b.WriteString("\n| " + name + " |")
		for _, s := range sites {
			b.WriteString(" " + worst[name+"/"+s.name] + " |")
		}
	}
	t.Log(b.String())
}

// TestOldAndNewRulesSideBySide has instances with different limits and bursts share
// keys. No window admits more than the larger limit, plus the larger burst where
// there is one, also with charges after the response.
func TestOldAndNewRulesSideBySide(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	local, shared := &memory.Store{Clock: v.clock}, newVirtualShared(t, srv, v)
	r := storekit.Seeded(t)
	budget := storekit.Operations(t)
	for trial := 0; budget > 0; trial++ {
		for name, vic := range storekit.Victims(r) {
			if name == "leaky_bucket" {
				continue // the length of its queue depends on the wait, an option of the zone
			}
			debt := r.IntN(2) == 0
			vic.Spec.Spec.Overdraws = debt
			later := vic.Spec.Changed(r)
			later.Spec.Limit = 1 + r.Int64N(40)
			bound := boundOf(name, vic.Spec, later)
			for i, s := range []stores.Store{local, shared} {
				zone := fmt.Sprintf("s%d-%d", trial, i)
				old := kit.NewTestCounter(t, zone, 0, false, nil, vic.Spec)
				both := []*stores.Counter{old, kit.NewTestCounter(t, zone, 0, false, old.Table, later)}
				checks := 60
				budget -= checks
				charges := attack(r, vic, checks, func(at, cost int64) (bool, int64) {
					if debt && r.IntN(8) == 0 {
						chargeLater(v, s, shared, both[r.IntN(2)], at)
					}
					return decideAt(v, s, []*Store{shared}, both[r.IntN(2)], at, cost)
				})
				if found := storekit.WorstWindow(charges, vic.Spec.Spec.Window); found > bound {
					t.Errorf("%s, store %d: %d in a window of %d, bound %d: %+v %+v and %+v %+v", name, i, found, vic.Spec.Spec.Window, bound,
						vic.Spec.Alg, vic.Spec.Spec, later.Alg, later.Spec)
				}
			}
		}
	}
}

// chargeLater charges 1 in a store, as after a response.
func chargeLater(v *virtual, s stores.Store, shared *Store, c *stores.Counter, at int64) {
	v.now = at
	shared.setTime(at)
	s.Finish(context.Background(), &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}, Tag: stores.Key{Hi: 1, Lo: 2}}, Enforced: stores.Enforced{Rules: c.Rules}, Results: make([]stores.Result, 1), Charged: true}, 1)
}

func boundOf(name string, a, b storekit.RuleSpec) int64 {
	l := max(a.Spec.Limit, b.Spec.Limit)
	switch {
	case strings.HasPrefix(name, "fixed"):
		return 2 * l
	case strings.HasPrefix(name, "sliding"):
		return l
	}
	return l + max(burstOf(a), burstOf(b))
}

func burstOf(s storekit.RuleSpec) int64 {
	switch a := s.Alg.(type) {
	case *algorithms.GCRA:
		return a.Burst
	case *algorithms.TokenBucket:
		return a.Burst
	case *algorithms.LeakyBucket:
		return a.Burst
	}
	return 0
}

// TestOneLimitTwoBursts makes checks at one instant, alternating between a large
// burst and a small one with the same limit. The large burst is admitted, and no
// more.
func TestOneLimitTwoBursts(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	local, shared := &memory.Store{Clock: v.clock}, newVirtualShared(t, srv, v)
	for i, s := range []stores.Store{local, shared} {
		sp := algorithms.Spec{Limit: 4, Window: 1_000_000, Cost: 1}
		large := kit.NewTestCounter(t, "b", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 23}, Spec: sp})
		small := kit.NewTestCounter(t, "b", 0, false, large.Table, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 1}, Spec: sp})
		admitted := 0
		for n := range 200 {
			c := large
			if n%2 == 1 {
				c = small
			}
			if ok, _ := decideAt(v, s, []*Store{shared}, c, storekit.Hour, 1); ok {
				admitted++
			}
		}
		if admitted != 23 {
			t.Errorf("store %d: %d admitted at one instant, want the burst of 23", i, admitted)
		}
	}
}
