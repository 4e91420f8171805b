package redis

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// A lease is a part of a key's limit that is charged in advance for one
// instance, which may spend it for a while without a call. Only hot keys get
// leases, as large as they are expected to need: what is not spent in time is
// lost. If Redis had little left, the key is used up on all instances, and no
// lease is requested for a pause; otherwise there would be a call for each unit
// that becomes available.

const (
	leaseSlots = 4096
	leaseLeast = 4       // a key is hot if it needs this much within a lease
	leaseCost  = 1 << 20 // a higher cost is neither leased nor counted
	leaseCount = 1 << 30
	leasePart  = 16 // a lease is at least capacity/leasePart, however slowly the limit refills
)

// leases are stored in a fixed number of slots. Of two keys in one slot the
// first has the leases until it is idle.
type leases struct {
	lasts   int64 // microseconds
	slots   [leaseSlots]lease
	cleared atomic.Uint64
}

// newLeases returns leases that last so long; 0: nil.
func newLeases(lasts time.Duration) *leases {
	if lasts <= 0 {
		return nil
	}
	return &leases{lasts: lasts.Microseconds()}
}

// lease is the lease of one key under one counter.
type lease struct {
	mu      sync.Mutex
	counter uint64 // its serial number
	key     stores.Key
	epoch   uint64
	seen    int64 // when a request last checked the key

	// The cost that was requested within the last lease, and since an instant.
	rate, count, since int64

	parts [2]leasedPart // the older one first
	low   int64         // with less than this left, a lease is requested

	asked int64 // when the pending call began; 0: there is none
	thin  bool  // there was little left
	until int64 // no lease is requested until then, if thin

	terms leaseTerms

	stats stores.LeaseStats // of all keys that had this slot
}

// leasedPart is the rest of one grant, and until when it is valid.
type leasedPart struct{ left, end int64 }

// leaseTerms are the limits of leases under a counter's rules.
type leaseTerms struct {
	capacity int64 // the highest cost that is not always denied
	most     int64 // the largest lease
	pause    int64 // microseconds without requests for a lease after a thin one
}

// leaseTermsOf returns the terms of a counter. The pause is so short that
// nothing is lost by it: the rules have room for what refills meanwhile.
func leaseTermsOf(c *stores.Counter) leaseTerms {
	t := leaseTerms{math.MaxInt64, leaseCost, c.Lease / 5}
	for _, r := range c.Rules {
		capacity, perLease := r.Capacity(), float64(r.Limit())/float64(r.Window())*float64(c.Lease)
		t.capacity = min(t.capacity, capacity)
		t.most = min(t.most, capacity, max(capacity/leasePart, int64(min(perLease, leaseCost))))
		t.pause = min(t.pause, int64(float64(capacity)/float64(r.Limit())*float64(r.Window())/4))
	}
	t.pause = max(t.pause, 1)
	return t
}

// at returns the slot of a zone's key.
func (l *leases) at(z *stores.ZoneCheck) *lease {
	return &l.slots[(z.Key.Lo^prepare(z.Counter).serial*0x9e3779b97f4a7c15)>>20%leaseSlots]
}

// clear forgets all leases.
func (l *leases) clear() {
	if l != nil {
		l.cleared.Add(1)
	}
}

// leaseAnswer is what a request gets without a call.
type leaseAnswer struct {
	drawn bool // the cost was drawn from a part that is valid until end
	end   int64
	left  int64 // of the lease after that
	until int64 // the key is used up, and denied until then; 0: unknown
	want  int64 // request a lease of this size, and call answered
}

// draw draws the cost of one zone from its lease. now is on the local clock.
func (l *leases) draw(z *stores.ZoneCheck, now int64, epoch uint64) (a leaseAnswer) {
	x := l.at(z)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.own(z, now, epoch, l.lasts) {
		return a
	}
	x.demand(z.Cost, now, l.lasts)
	if z.Cost <= x.terms.capacity {
		a.drawn, a.end = x.draw(z.Cost, now)
	}
	a.left = x.left(now)
	need := min(x.rate-x.rate/4, x.terms.most) // all of it must be spent in time
	paused := x.thin && now < x.until
	switch {
	case a.drawn && (paused || a.left > x.low):
	case !a.drawn && x.thin && (paused || x.asked != 0 && now-x.asked < x.terms.pause):
		a.until = max(x.until, now+x.terms.pause/4+1)
	case x.asked == 0 && need >= leaseLeast && need > a.left:
		x.asked, a.want = now, need-a.left
	}
	return a
}

// drawAgain draws a zone's cost from a lease that was just granted.
func (l *leases) drawAgain(z *stores.ZoneCheck, now int64, epoch uint64) (a leaseAnswer) {
	x := l.at(z)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.is(z) && x.epoch == epoch && z.Cost <= x.terms.capacity {
		a.drawn, a.end = x.draw(z.Cost, now)
		a.left = x.left(now)
	}
	return a
}

// is says whether the slot belongs to the zone's key.
func (x *lease) is(z *stores.ZoneCheck) bool {
	return x.key == z.Key && x.counter == prepare(z.Counter).serial
}

// own assigns the slot to the zone's key, unless another key still uses it.
func (x *lease) own(z *stores.ZoneCheck, now int64, epoch uint64, lasts int64) bool {
	if x.is(z) {
		if x.epoch != epoch {
			x.epoch, x.parts, x.thin = epoch, [2]leasedPart{}, false
		}
		return true
	}
	if x.counter != 0 && now-x.seen < lasts {
		return false
	}
	x.key, x.counter, x.epoch, x.terms = z.Key, prepare(z.Counter).serial, epoch, leaseTermsOf(z.Counter)
	x.parts, x.low, x.asked, x.thin = [2]leasedPart{}, 0, 0, false
	x.rate, x.count, x.since = 0, 0, now
	return true
}

// demand counts the cost that is requested.
func (x *lease) demand(cost, now, lasts int64) {
	if age := now - x.since; age >= lasts {
		x.rate = x.count * lasts / age
		x.count, x.since = 0, now
	}
	x.count = min(x.count+min(cost, leaseCost), leaseCount)
	x.seen = now
}

// draw draws a cost from the lease.
func (x *lease) draw(cost, now int64) (drawn bool, end int64) {
	for i := range x.parts {
		if p := &x.parts[i]; p.left >= cost && now < p.end {
			p.left -= cost
			x.stats.Spent += uint64(cost)
			return true, p.end
		}
	}
	return false, 0
}

// left returns what is left of the lease.
func (x *lease) left(now int64) (left int64) {
	for i := range x.parts {
		if now < x.parts[i].end {
			left += x.parts[i].left
		}
	}
	return left
}

// putBack puts back the cost of a request that was denied elsewhere, if the
// part that it was drawn from is still there.
func (l *leases) putBack(z *stores.ZoneCheck, cost, end int64) {
	x := l.at(z)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.is(z) {
		return
	}
	for i := range x.parts {
		if x.parts[i].end == end {
			x.parts[i].left += cost
			x.stats.Spent -= uint64(cost)
			return
		}
	}
}

// answered applies the reply for a zone that requested a lease. own says that its
// cost, too, is to be spent later. sent is when Redis was called.
func (l *leases) answered(z *stores.ZoneCheck, sent int64, now int64, epoch uint64, own bool) {
	x := l.at(z)
	got, reported := int64(0), z.Lease.Granted >= 0 && !z.Blocked() // of a blocked key nothing is reported
	x.mu.Lock()
	defer x.mu.Unlock()
	if reported && z.Charged { // also if the slot is another key's now, and the lease is lost
		if got = z.Lease.Granted; own {
			got += z.Cost
		}
		x.stats.Times++
		x.stats.Granted += uint64(got)
	}
	if !x.is(z) || x.asked == 0 {
		return
	}
	if x.asked = 0; !reported || x.epoch != epoch {
		return
	}
	if x.thin = got < z.Lease.Want/4; x.thin {
		x.until = sent + x.terms.pause - rand.Int64N(x.terms.pause/2+1) //nolint:gosec // so that instances take turns
	}
	lasts := l.lasts
	for i := range z.Results {
		res := &z.Results[i]
		lasts = min(lasts, algorithms.Lasts(res.Rule, res.State, now, l.lasts))
	}
	if got > 0 {
		if x.parts[0].left == 0 || x.parts[0].end <= sent || x.parts[1].left > 0 {
			x.parts[0] = x.parts[1]
		}
		x.parts[1] = leasedPart{got, sent + lasts - (lasts+999)/1000}
		x.low = x.left(sent) / 4
	}
}

// stats returns the totals.
func (l *leases) stats() (sum stores.LeaseStats) {
	for i := range l.slots {
		x := &l.slots[i]
		x.mu.Lock()
		sum.Times, sum.Granted, sum.Spent = sum.Times+x.stats.Times, sum.Granted+x.stats.Granted, sum.Spent+x.stats.Spent
		x.mu.Unlock()
	}
	return sum
}
