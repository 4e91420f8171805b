package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// leasedSpec returns a rule with the longest lease that is possible, or a shorter
// one; false if none is.
func leasedSpec(r *rand.Rand, s storekit.RuleSpec) (storekit.RuleSpec, bool) {
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

// newLeasing returns instances on one virtual clock, without leases so far.
func newLeasing(tb testing.TB, srv *redistest.Server, v *virtual, n int) (all []*Store) {
	tb.Helper()
	for range n {
		all = append(all, newVirtualShared(tb, srv, v))
	}
	return all
}

// enableLeases makes instances lease a counter, beginning without leases.
func enableLeases(all []*Store, c *stores.Counter, lease int64) {
	c.Lease = lease
	for _, s := range all {
		s.past.leases = &leases{lasts: lease}
		s.leasing = leasingOf(s.decider, s.past.leases)
	}
}

// requestMostLease makes the next call for a key request the largest lease.
func requestMostLease(s *Store, z *stores.ZoneCheck, most int64) {
	now := s.o.Clock()
	x := s.leasing.leases.at(z)
	x.own(z, now, s.leasing.epoch(z), s.leasing.leases.lasts)
	x.rate, x.since, x.terms.most, x.thin = leaseCost, now, most, false
}

// TestWorstWindowsLeased attacks every algorithm through instances with the largest
// leases and one without, also at the edges of leases. No window exceeds the bound;
// the worst windows are logged.
func TestWorstWindowsLeased(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	all := newLeasing(t, srv, v, 4)
	r := storekit.Seeded(t)
	worst, spent := make(map[string]string), make(map[string]uint64)
	closest := make(map[string]float64)
	sites := []site{{"leasing", nil}}
	budget := storekit.Operations(t)
	for trial := 0; budget > 0; trial++ {
		for name, vic := range storekit.Victims(r) {
			if name == "leaky_bucket" {
				continue // never leased, because it delays
			}
			if name == "fixed_window" {
				vic.Bound++ // a window may begin with an unspent lease
			}
			var can bool
			if vic.Spec, can = leasedSpec(r, vic.Spec); !can {
				continue
			}
			c := kit.NewTestCounter(t, fmt.Sprintf("l%d", trial), 0, false, nil, vic.Spec)
			enableLeases(all, c, vic.Spec.Spec.Lease)
			checks := 60
			budget -= checks
			f := &leaseAttack{v: v, all: all, counter: c, most: vic.Bound}
			charges := f.attack(r, vic, checks)
			if r.IntN(2) == 0 {
				charges = f.lateSpending(r, vic)
			}
			found := storekit.WorstWindow(charges, vic.Spec.Spec.Window)
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
		v.flush(t)
	}
	printWorst(t, worst, sites)
	for name, n := range spent {
		if n == 0 {
			t.Errorf("%s: nothing of a lease was spent", name)
		}
	}
	t.Logf("spent of leases: %v", spent)
}

// leaseAttack attacks one key through several instances.
type leaseAttack struct {
	v       *virtual
	all     []*Store
	counter *stores.Counter
	most    int64
	charges []storekit.Charge
}

// decide decides a check at one instance and instant. leases says whether the
// instance requests a lease.
func (f *leaseAttack) decide(which int, leases bool, at, cost int64) (bool, int64) {
	f.v.now, f.v.conn = at, f.all[which].conn
	if leases {
		requestMostLease(f.all[which], &stores.ZoneCheck{Counter: f.counter, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}}}, f.most)
	}
	ok, retry := decideAt(f.v, f.all[which], f.all, f.counter, at, cost)
	if ok {
		f.charges = append(f.charges, storekit.Charge{At: at, Cost: cost})
	}
	return ok, retry
}

// leaseMost makes an instance lease as much as possible, without spending.
func (f *leaseAttack) leaseMost(s *Store, at int64) {
	f.v.now, f.v.conn = at, s.conn
	z := &stores.ZoneCheck{Counter: f.counter, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}, Tag: stores.Key{Hi: 1, Lo: 2}}, Cost: 1}
	requestMostLease(s, z, f.most)
	s.leasing.leases.at(z).asked = at
	f.v.tick()
	s.leasing.renew(context.Background(), z, f.most)
}

// attack is the attack on other stores, with checks also just before and after the
// end of a lease. The first instance leases nothing.
func (f *leaseAttack) attack(r *rand.Rand, v storekit.Victim, checks int) []storekit.Charge {
	edges := []int64{v.Spec.Spec.Lease, v.Spec.Spec.Lease * 999 / 1000, 1}
	var delay int64
	attack(r, v, checks, func(at, cost int64) (bool, int64) {
		if r.IntN(3) == 0 {
			delay += max(0, edges[r.IntN(len(edges))]-r.Int64N(2))
		}
		which := r.IntN(len(f.all))
		return f.decide(which, which > 0 && r.IntN(4) > 0, at+delay, cost)
	})
	return f.charges
}

// lateSpending leases as much as possible just before a part of the window ends,
// spends it just before the end of the leases, and then makes checks for the rest
// of a window.
func (f *leaseAttack) lateSpending(r *rand.Rand, v storekit.Victim) []storekit.Charge {
	lease, window := v.Spec.Spec.Lease, v.Spec.Spec.Window
	at := max(f.v.now, storekit.Hour) + 10*window
	if p := parts(v); p > 0 {
		width := (window + p - 1) / p
		at += width - at%width - 1 - r.Int64N(lease)
	}
	for range 2 {
		for _, shared := range f.all {
			f.leaseMost(shared, at)
		}
	}
	at += max(0, lease-(lease+999)/1000-1)
	start := at
	for n := 0; at < start+window && n < 300; n++ {
		var least int64 = -1
		for i := range f.all {
			for ok := true; ok; n++ {
				var retry int64
				if ok, retry = f.decide(i, false, at, 1); !ok && (least < 0 || retry < least) {
					least = retry
				}
			}
		}
		at += max(1, least)
	}
	return f.charges
}

// parts returns the number of parts of a window at whose ends charges expire.
func parts(v storekit.Victim) int64 {
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
