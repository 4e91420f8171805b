package redis

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// A lease is a part of a key's limit that one instance was charged in advance, and
// may spend for a while without asking Redis. Only keys that come often enough
// are leased any, as much as they will need by the look of it: what is not spent
// in time is lost. Where Redis had little left, the key is used up everywhere, and
// is not asked for again at once, or there would be a call for each unit that
// comes free.

const (
	leaseSlots = 4096
	leaseLeast = 4       // a key is hot if it needs this much within a lease
	leaseCost  = 1 << 20 // more than this is neither leased nor taken note of
	leaseCount = 1 << 30
	leasePart  = 16 // of a capacity may be leased at once, however slowly it fills
)

// leases are kept in a fixed number of slots. Of keys that fall together the one
// that was there first is leased something, until it comes no more.
type leases struct {
	lasts   int64 // in microseconds
	slots   [leaseSlots]lease
	dropped atomic.Uint64
}

// lease is what an instance has in hand of one key under one counter.
type lease struct {
	mu      sync.Mutex
	counter uint64 // its serial
	key     stores.Key
	epoch   uint64
	seen    int64 // when it was last asked for

	// How much is asked for: within one lease as of late, and since an instant.
	rate, count, since int64

	parts [2]leasePiece // the older one first
	last  *lastWord
	low   int64 // with less than this in hand Redis is asked again

	asked int64 // since when Redis is being asked; 0: it is not
	thin  bool  // there was little left
	until int64 // until when it is not asked again, if so

	terms leaseTerms

	// Counted for metrics, whatever key is here.
	times, granted, spent uint64
}

// leasePiece is what one answer granted, and until when it is good.
type leasePiece struct{ left, end int64 }

// lastWord is what Redis last said of a key. It does not change.
type lastWord struct {
	sent    int64 // when it was asked, on the local clock
	now     int64 // on Redis' clock
	results []stores.Result
	states  []algorithms.State // after the charge, to judge by
	rules   []algorithms.Rule
}

// leaseTerms are what a counter's rules make of leases.
type leaseTerms struct {
	capacity int64 // the greatest cost that a request may have
	most     int64 // to be leased at once
	pause    int64 // how long not to ask when little was left, in microseconds
}

// leaseTermsOf returns them. A pause is so short that nothing is lost by it: what
// drains meanwhile has room.
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

func (l *leases) at(z *stores.ZoneCheck) *lease {
	return &l.slots[cacheSlot(z, leaseSlots)]
}

// leaseAnswer is what there is for a request without asking Redis.
type leaseAnswer struct {
	taken bool // its cost was taken, from what is good until end
	end   int64
	left  int64     // in hand after that
	last  *lastWord // if taken, or if denied
	until int64     // the key is used up, and denied until then; 0: it may not be
	want  int64     // Redis is to be asked for this much; settle has to be called
}

// take answers for one item at an instant of the local clock.
func (l *leases) take(z *stores.ZoneCheck, now int64, epoch uint64) (a leaseAnswer) {
	x := l.at(z)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.own(z, now, epoch, l.lasts) {
		return a
	}
	x.note(z.Cost, now, l.lasts)
	if z.Cost <= x.terms.capacity {
		a.taken, a.end = x.spend(z.Cost, now)
	}
	a.left, a.last = x.left(now), x.last
	need := min(x.rate-x.rate/4, x.terms.most) // it must all be spent in time
	paused := x.thin && now < x.until
	switch {
	case a.taken && (paused || a.left > x.low):
	case !a.taken && x.thin && (paused || x.asked != 0 && now-x.asked < x.terms.pause):
		a.until = max(x.until, now+x.terms.pause/4+1)
	case x.asked == 0 && need >= leaseLeast && need > a.left:
		x.asked, a.want = now, need-a.left
	}
	return a
}

// retake takes an item's cost from what was just granted.
func (l *leases) retake(z *stores.ZoneCheck, now int64, epoch uint64) (a leaseAnswer) {
	x := l.at(z)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.is(z) && x.epoch == epoch && z.Cost <= x.terms.capacity {
		a.taken, a.end = x.spend(z.Cost, now)
		a.left, a.last = x.left(now), x.last
	}
	return a
}

// is says whether the slot is that of the item's key.
func (x *lease) is(z *stores.ZoneCheck) bool {
	return x.key == z.Key && x.counter == prepare(z.Counter).serial
}

// own makes the slot that of the item's key, unless another one still uses it.
func (x *lease) own(z *stores.ZoneCheck, now int64, epoch uint64, lasts int64) bool {
	if x.is(z) {
		if x.epoch != epoch {
			x.epoch, x.parts, x.thin = epoch, [2]leasePiece{}, false
		}
		return true
	}
	if x.counter != 0 && now-x.seen < lasts {
		return false
	}
	x.key, x.counter, x.epoch, x.terms = z.Key, prepare(z.Counter).serial, epoch, leaseTermsOf(z.Counter)
	x.parts, x.last, x.low, x.asked, x.thin = [2]leasePiece{}, nil, 0, 0, false
	x.rate, x.count, x.since = 0, 0, now
	return true
}

// note counts what is asked for.
func (x *lease) note(cost, now, lasts int64) {
	if age := now - x.since; age >= lasts {
		x.rate = x.count * lasts / age
		x.count, x.since = 0, now
	}
	x.count = min(x.count+min(cost, leaseCost), leaseCount)
	x.seen = now
}

// spend takes a cost from what is in hand.
func (x *lease) spend(cost, now int64) (taken bool, end int64) {
	for i := range x.parts {
		if p := &x.parts[i]; p.left >= cost && now < p.end {
			p.left -= cost
			x.spent += uint64(cost)
			return true, p.end
		}
	}
	return false, 0
}

// left is what is in hand.
func (x *lease) left(now int64) (left int64) {
	for i := range x.parts {
		if now < x.parts[i].end {
			left += x.parts[i].left
		}
	}
	return left
}

// giveBack puts back what was taken for a request that was denied elsewhere, if
// what it was taken from is still there.
func (l *leases) giveBack(z *stores.ZoneCheck, cost, end int64) {
	x := l.at(z)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.is(z) {
		return
	}
	for i := range x.parts {
		if x.parts[i].end == end {
			x.parts[i].left += cost
			x.spent -= uint64(cost)
			return
		}
	}
}

// settle takes what an item that wanted a lease was answered. own says that its
// cost, too, is to be spent later. sent is when Redis was asked.
func (l *leases) settle(z *stores.ZoneCheck, sent int64, now int64, epoch uint64, own bool) {
	x := l.at(z)
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.is(z) || x.asked == 0 {
		return
	}
	x.asked = 0
	if z.Lease.Granted < 0 || x.epoch != epoch {
		return
	}
	got := int64(0)
	if z.Charged {
		if got = z.Lease.Granted; own {
			got += z.Cost
		}
		x.times++
		x.granted += uint64(got)
	}
	if x.thin = got < z.Lease.Want/4; x.thin {
		x.until = sent + x.terms.pause - rand.Int64N(x.terms.pause/2+1) //nolint:gosec // instances take turns
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
		x.parts[1] = leasePiece{got, sent + lasts - (lasts+999)/1000}
		x.low = x.left(sent) / 4
	}
	x.last = lastWordOf(z, sent, now)
}

func lastWordOf(z *stores.ZoneCheck, sent, now int64) *lastWord {
	w := &lastWord{sent: sent, now: now}
	for i := range z.Results {
		res := &z.Results[i]
		w.results = append(w.results, stores.Result{Verdict: algorithms.Verdict{Admit: true}, Remaining: res.Remaining, Reset: res.Reset})
		w.states, w.rules = append(w.states, res.State), append(w.rules, res.Rule)
	}
	return w
}

// clear forgets what is in hand of all keys.
func (l *leases) clear() {
	if l != nil {
		l.dropped.Add(1)
	}
}

// LeaseStats is how often something was leased to this instance, how much, and how
// much of it was spent.
type LeaseStats struct {
	// Times is how often there was a lease.
	Times uint64

	// Granted is the cost that was charged in advance.
	Granted uint64

	// Spent is the cost that requests took of that.
	Spent uint64
}

// LeaseStats tells of the store's leases; false if it has none.
func (s *Store) LeaseStats() (sum LeaseStats, has bool) {
	if s.leases == nil {
		return sum, false
	}
	for i := range s.leases.slots {
		x := &s.leases.slots[i]
		x.mu.Lock()
		sum.Times, sum.Granted, sum.Spent = sum.Times+x.times, sum.Granted+x.granted, sum.Spent+x.spent
		x.mu.Unlock()
	}
	return sum, true
}
