package stores

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
)

// attack spends time and cost where it may pay: all that passes at once, just
// when a retry has passed, and at the edges of windows. decide takes a cost at
// an instant and says whether it passed, and when to come back.
func attack(r *rand.Rand, v victim, asks int, decide func(at, cost int64) (bool, int64)) []charge {
	var charges []charge
	w := v.spec.spec.Window
	now := 1_700_000_000_000_000 + r.Int64N(w)
	greed := r.IntN(3) // how often it waits instead of taking all
	for range asks {
		cost := int64(1)
		if r.IntN(3) == 0 {
			cost += r.Int64N(3)
		}
		ok, retry := decide(now, cost)
		if ok {
			charges = append(charges, charge{now, cost})
		}
		switch {
		case ok && r.IntN(4) >= greed:
		case !ok && r.IntN(3) > 0:
			now += max(0, retry)
		default:
			now += []int64{0, 1, w - 1, w, w - now%w, w - now%w - 1, r.Int64N(w), r.Int64N(2*w + 1)}[r.IntN(8)]
		}
	}
	return charges
}

// place is one of the ways to be counted.
type site struct {
	name  string
	store func(r *rand.Rand) Store
}

// TestWorstWindows attacks every algorithm on the local store, on Redis, and
// through three instances at once, and prints the worst window that it found
// beside the bound.
func TestWorstWindows(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	local := &Local{Clock: v.clock}
	var shared []*Shared
	for range 3 {
		shared = append(shared, newVirtualShared(t, srv, v))
	}
	sites := []site{
		{"local", func(*rand.Rand) Store { return local }},
		{"redis", func(*rand.Rand) Store { return shared[0] }},
		{"three instances", func(r *rand.Rand) Store { return shared[r.IntN(3)] }},
	}
	r := seeded(t)
	worst := make(map[string]string)
	closest := make(map[string][2]float64) // how close it came, and of what: a large bound tells more than a small one
	budget := operations(t, 12_000)
	for trial := 0; budget > 0; trial++ {
		for name, vic := range victims(r) {
			for i, s := range sites {
				c := newTestCounter(t, fmt.Sprintf("w%d-%d", trial, i), 0, false, nil, vic.spec)
				asks := 60
				budget -= asks
				charges := attack(r, vic, asks, func(at, cost int64) (bool, int64) { return take(v, s.store(r), shared, c, at, cost) })
				found := worstWindow(charges, vic.spec.spec.Window)
				if found > vic.bound {
					t.Errorf("%s, %s: %d in a window of %d, bound %d: %+v %+v", name, s.name, found, vic.spec.spec.Window, vic.bound, vic.spec.alg, vic.spec.spec)
				}
				key := name + "/" + s.name
				end := [2]float64{float64(found) / float64(vic.bound), float64(vic.bound)}
				if was := closest[key]; slices.Compare(end[:], was[:]) > 0 {
					closest[key], worst[key] = end, fmt.Sprintf("%d of %d", found, vic.bound)
				}
			}
		}
		v.forget(t)
	}
	printWorst(t, worst, sites)
}

// take asks one store at an instant.
func take(v *virtual, s Store, shared []*Shared, c *Counter, at, cost int64) (bool, int64) {
	v.now = at
	for _, sh := range shared {
		sh.conn.seq.Store(uint64(at) - 1)
	}
	k := Key{1, 2}
	a := &Ask{Items: []Item{{Counter: c, Key: k, Tag: k, Cost: cost}}}
	s.Decide(context.Background(), a)
	var retry int64
	for _, res := range a.Items[0].Results {
		retry = max(retry, res.Retry)
	}
	return a.Admitted, retry
}

func printWorst(t *testing.T, worst map[string]string, sites []site) {
	t.Helper()
	var b strings.Builder
	b.WriteString("worst windows found, of the bound:\n| algorithm |")
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

// TestOldAndNewRulesSideBySide lets instances with different limits and bursts
// share keys: in no window passes more than the larger limit, plus the larger
// burst where there is one. What either charges after the fact takes nothing of
// that back.
func TestOldAndNewRulesSideBySide(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	local, shared := &Local{Clock: v.clock}, newVirtualShared(t, srv, v)
	r := seeded(t)
	budget := operations(t, 12_000)
	for trial := 0; budget > 0; trial++ {
		for name, vic := range victims(r) {
			if name == "leaky_bucket" {
				continue // its queue is as long as its wait, which is part of the zone
			}
			owes := r.IntN(2) == 0
			vic.spec.spec.Debt = owes
			later := vic.spec.changed(r)
			later.spec.Limit = 1 + r.Int64N(40)
			bound := boundOf(name, vic.spec, later)
			for i, s := range []Store{local, shared} {
				zone := fmt.Sprintf("s%d-%d", trial, i)
				old := newTestCounter(t, zone, 0, false, nil, vic.spec)
				both := []*Counter{old, newTestCounter(t, zone, 0, false, old.Table, later)}
				asks := 60
				budget -= asks
				charges := attack(r, vic, asks, func(at, cost int64) (bool, int64) {
					if owes && r.IntN(8) == 0 {
						settle(v, s, shared, both[r.IntN(2)], at)
					}
					return take(v, s, []*Shared{shared}, both[r.IntN(2)], at, cost)
				})
				if found := worstWindow(charges, vic.spec.spec.Window); found > bound {
					t.Errorf("%s, store %d: %d in a window of %d, bound %d: %+v %+v and %+v %+v", name, i, found, vic.spec.spec.Window, bound,
						vic.spec.alg, vic.spec.spec, later.alg, later.spec)
				}
			}
		}
	}
}

// settle charges one store one more, after the fact.
func settle(v *virtual, s Store, shared *Shared, c *Counter, at int64) {
	v.now = at
	shared.conn.seq.Store(uint64(at) - 1)
	s.Finish(context.Background(), &Item{Counter: c, Key: Key{1, 2}, Tag: Key{1, 2}, Rules: c.Rules, Results: make([]Result, 1), Charged: true}, 1)
}

func boundOf(name string, a, b ruleSpec) int64 {
	l := max(a.spec.Limit, b.spec.Limit)
	switch {
	case strings.HasPrefix(name, "fixed"):
		return 2 * l
	case strings.HasPrefix(name, "sliding"):
		return l
	}
	return l + max(burstOf(a), burstOf(b))
}

func burstOf(s ruleSpec) int64 {
	switch a := s.alg.(type) {
	case *algorithms.GCRA:
		return a.Burst
	case *algorithms.TokenBucket:
		return a.Burst
	case *algorithms.LeakyBucket:
		return a.Burst
	}
	return 0
}

// TestOneLimitTwoBursts asks, all at one instant, by turns under a large burst
// and under a small one with the same limit: no more passes than the large one.
func TestOneLimitTwoBursts(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	local, shared := &Local{Clock: v.clock}, newVirtualShared(t, srv, v)
	for i, s := range []Store{local, shared} {
		sp := algorithms.Spec{Limit: 4, Window: 1_000_000, Cost: 1}
		large := newTestCounter(t, "b", 0, false, nil, ruleSpec{&algorithms.GCRA{Burst: 23}, sp})
		small := newTestCounter(t, "b", 0, false, large.Table, ruleSpec{&algorithms.GCRA{Burst: 1}, sp})
		passed := 0
		for n := range 200 {
			c := large
			if n%2 == 1 {
				c = small
			}
			if ok, _ := take(v, s, []*Shared{shared}, c, hour, 1); ok {
				passed++
			}
		}
		if passed != 23 {
			t.Errorf("store %d: %d passed at one instant, want the burst of 23", i, passed)
		}
	}
}
