package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// leasedSpec gives a rule the longest lease that it can have, or a shorter one;
// false if it can have none.
func leasedSpec(r *rand.Rand, s storestest.RuleSpec) (storestest.RuleSpec, bool) {
	longest := int64(0)
	for d := int64(1); d < 2*s.Spec.Window; d *= 2 {
		s.Spec.Lease = d
		if _, err := s.Alg.Compile(s.Spec); err != nil {
			break
		}
		longest = d
	}
	if s.Spec.Lease = longest; r.IntN(2) == 0 && longest > 0 {
		s.Spec.Lease = 1 + r.Int64N(longest)
	}
	return s, longest > 0
}

// newLeasing returns instances on one clock, whose leases last as long as those
// that the counter was made for.
func newLeasing(tb testing.TB, srv *redistest.Server, v *virtual, n int) (all []*Store) {
	tb.Helper()
	for range n {
		all = append(all, newVirtualShared(tb, srv, v))
	}
	return all
}

// lend gives instances fresh leases for a counter.
func lend(all []*Store, c *stores.Counter, lease int64) {
	c.Lease = lease
	for _, s := range all {
		s.leasing = &leasing{decider: s.decider, leases: &leases{lasts: lease}}
		s.resets.leasing = s.leasing
	}
}

// eager makes an instance want all it can get of a key, whatever it asked for.
func eager(s *Store, z *stores.ZoneCheck, most int64) {
	now := s.o.Clock()
	x := s.leasing.leases.at(z)
	x.own(z, now, s.leasing.epoch(), s.leasing.leases.lasts)
	x.rate, x.since, x.terms.most, x.thin = leaseCost, now, most, false
}

// TestWorstWindowsLeased attacks every algorithm through instances with the
// largest leases, some of which lease nothing, and prints the worst window that
// it found with the bound. Costs are also requested at the edges of leases.
func TestWorstWindowsLeased(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	all := newLeasing(t, srv, v, 4)
	r := storestest.Seeded(t)
	worst, spent := make(map[string]string), make(map[string]uint64)
	closest := make(map[string]float64)
	sites := []site{{"leasing", nil}}
	budget := storestest.Operations(t, 12_000)
	for trial := 0; budget > 0; trial++ {
		for name, vic := range storestest.Victims(r) {
			if name == "leaky_bucket" {
				continue // it delays, and is never leased
			}
			if name == "fixed_window" {
				vic.Bound++ // a window may begin with a lease of which nothing is spent yet
			}
			var can bool
			if vic.Spec, can = leasedSpec(r, vic.Spec); !can {
				continue
			}
			c := storestest.NewTestCounter(t, fmt.Sprintf("l%d", trial), 0, false, nil, vic.Spec)
			lend(all, c, vic.Spec.Spec.Lease)
			asks := 60
			budget -= asks
			f := &fleetOf{v: v, all: all, counter: c, most: vic.Bound}
			charges := f.attack(r, vic, asks)
			if r.IntN(2) == 0 {
				charges = f.ambush(r, vic)
			}
			found := storestest.WorstWindow(charges, vic.Spec.Spec.Window)
			if found > vic.Bound {
				t.Errorf("%s: %d in a window of %d, bound %d: %+v %+v", name, found, vic.Spec.Spec.Window, vic.Bound, vic.Spec.Alg, vic.Spec.Spec)
			}
			for _, s := range all {
				sum, _ := s.LeaseStats()
				spent[name] += sum.Spent
			}
			if q := float64(found) / float64(vic.Bound); q >= closest[name] {
				closest[name], worst[name+"/leasing"] = q, fmt.Sprintf("%d of %d", found, vic.Bound)
			}
		}
		v.forget(t)
	}
	printWorst(t, worst, sites)
	for name, n := range spent {
		if n == 0 {
			t.Errorf("%s: nothing was spent of a lease", name)
		}
	}
	t.Logf("spent of leases: %v", spent)
}

// fleetOf is instances that one key is asked of.
type fleetOf struct {
	v       *virtual
	all     []*Store
	counter *stores.Counter
	most    int64
	charges []storestest.Charge
}

// ask asks one instance at an instant, which wants to lease as much as it can, or
// nothing.
func (f *fleetOf) ask(which int, leases bool, at, cost int64) (bool, int64) {
	f.v.now, f.v.conn = at, f.all[which].conn
	if leases {
		eager(f.all[which], &stores.ZoneCheck{Counter: f.counter, Key: stores.Key{Hi: 1, Lo: 2}}, f.most)
	}
	ok, retry := take(f.v, f.all[which], f.all, f.counter, at, cost)
	if ok {
		f.charges = append(f.charges, storestest.Charge{At: at, Cost: cost})
	}
	return ok, retry
}

// hoard leases all that an instance can get, and spends nothing.
func (f *fleetOf) hoard(s *Store, at int64) {
	f.v.now, f.v.conn = at, s.conn
	z := &stores.ZoneCheck{Counter: f.counter, Key: stores.Key{Hi: 1, Lo: 2}, Tag: stores.Key{Hi: 1, Lo: 2}, Cost: 1}
	eager(s, z, f.most)
	s.leasing.leases.at(z).asked = at
	f.v.tick()
	s.leasing.renew(context.Background(), z, f.most)
}

// attack is that on other stores, with an eye on the lease: it also comes back
// when one is about to end, or just did. The first instance never leases.
func (f *fleetOf) attack(r *rand.Rand, v storestest.Victim, asks int) []storestest.Charge {
	edges := []int64{v.Spec.Spec.Lease, v.Spec.Spec.Lease * 999 / 1000, 1}
	var later int64
	attack(r, v, asks, func(at, cost int64) (bool, int64) {
		if r.IntN(3) == 0 {
			later += max(0, edges[r.IntN(len(edges))]-r.Int64N(2))
		}
		which := r.IntN(len(f.all))
		return f.ask(which, which > 0 && r.IntN(4) > 0, at+later, cost)
	})
	return f.charges
}

// ambush leases all there is, at a moment at which something is about to leave,
// spends it when the leases are about to end, and then takes what passes for the
// rest of a window.
func (f *fleetOf) ambush(r *rand.Rand, v storestest.Victim) []storestest.Charge {
	lease, window := v.Spec.Spec.Lease, v.Spec.Spec.Window
	at := max(f.v.now, storestest.Hour) + 10*window
	if p := parts(v); p > 0 {
		width := (window + p - 1) / p
		at += width - at%width - 1 - r.Int64N(lease)
	}
	for range 2 {
		for _, shared := range f.all {
			f.hoard(shared, at)
		}
	}
	at += max(0, lease-(lease+999)/1000-1)
	begun := at
	for n := 0; at < begun+window && n < 300; n++ {
		var least int64 = -1
		for i := range f.all {
			for ok := true; ok; n++ {
				var retry int64
				if ok, retry = f.ask(i, false, at, 1); !ok && (least < 0 || retry < least) {
					least = retry
				}
			}
		}
		at += max(1, least)
	}
	return f.charges
}

// parts is the number of parts of a window that something leaves at the ends of.
func parts(v storestest.Victim) int64 {
	switch a := v.Spec.Alg.(type) {
	case *algorithms.SlidingWindow:
		return a.Parts()
	case *algorithms.FixedWindow:
		return 1
	case *algorithms.TokenBucket:
		if step := time.Duration(a.Step).Microseconds(); step > 0 {
			return v.Spec.Spec.Window / step
		}
	}
	return 0
}
