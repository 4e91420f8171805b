package redis

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

const (
	retryEvery = 250 * time.Millisecond // of reports that failed

	// loseEvery is how often keys that Redis does not know have all reports repeated:
	// a Redis that evicts keys loses one after the other.
	loseEvery = time.Second

	// restart is where numbers that only grow start again, long before they are too
	// large for a double.
	restart = 1 << 52
)

// permits are what this instance's requests hold, and what Redis knows of it. In Redis
// each key has an entry for this store, which every report replaces: what the requests
// of the key hold now, wherever they were admitted, and the cost that responses were to
// charge so far. A lost report is made good by the next, and one that arrives twice or
// late changes nothing.
type permits struct {
	prefix string          // of the names of keys
	id     uint64          // random, of this store: two stores of a process report apart
	held   *memory.Permits // by zone and key
	clock  func() int64
	wake   chan struct{} // receives when Redis is to be told of something
	lost   atomic.Int64  // reports that left before may be lost

	mu      sync.Mutex
	records map[string]*record // by the name of the zone's key

	deciding map[string]*record // whose kind of rules decides and holds cost, by the name of the permits

	recordLists

	number  int64    // of the last report
	charged int64    // from which new records count
	round   uint64   // of renewals
	unsaid  []unsaid // charges that are not reported any more
}

// unsaid is cost that a record was to charge.
type unsaid struct {
	zone   stores.ZoneCheck
	charge int64
	err    error // errUnanswered: it may have been charged; errOpen: it was not
}

func newPermits(prefix string, held *memory.Permits, clock func() int64) *permits {
	return &permits{
		prefix: prefix, id: rand.Uint64(), held: held, clock: clock, wake: make(chan struct{}, 1), //nolint:gosec // it only has to be unique
		records: make(map[string]*record), deciding: make(map[string]*record),
	}
}

// recordOf returns the record of a zone's key, a new one if there is none. p.mu is held.
func (p *permits) recordOf(counter *stores.Counter, key, tag stores.Key) *record {
	z := stores.ZoneCheck{Counter: counter, Subject: stores.Subject{Key: key, Tag: tag}, Holding: stores.Holding{Reserve: true}}
	var room [128]byte
	name := appendName(room[:0], p.prefix, &z)
	if rec := p.records[string(name)]; rec != nil {
		return rec
	}
	kinds := fnv.New64a()
	_, _ = kinds.Write([]byte(counter.Kinds)) // never fails
	rec := &record{
		zone: z, value: string(name), permits: string(appendPermits(nil, p.prefix, &z)), id: p.id ^ kinds.Sum64(),
		charges: chargesFrom(p.charged),
	}
	p.records[rec.value] = rec
	p.touch(rec, p.clock())
	return rec
}

// add adds permits and cost to what the requests of a key hold. p.mu is held.
func (p *permits) add(rec *record, permits, cost int64) {
	rec.held, rec.cost = rec.held+permits, rec.cost+cost
	p.held.Add(&rec.zone, permits, cost)
}

// changed notes a change that Redis has to be told of. p.mu is held.
func (p *permits) changed(rec *record) {
	rec.changed(p.number + 1)
	p.tellSoon(rec)
}

func (p *permits) tellSoon(rec *record) {
	if rec.late == nil {
		rec.late = p.late.PushBack(rec)
	}
	signal(p.wake)
}

// lose notes that Redis may have lost all reports, so that the next round repeats them. It does not lock p.mu: its
// callers hold the lock of a node, which others lock while they hold p.mu.
func (p *permits) lose() {
	now := p.clock()
	for was := p.lost.Load(); was < now && !p.lost.CompareAndSwap(was, now); {
		was = p.lost.Load()
	}
	signal(p.wake)
}

// drop gives up the charges of a record that were reported in vain for too long, and forgets the record if Redis need
// not be told of it. p.mu is held.
func (p *permits) drop(rec *record) {
	if rec.age == nil {
		return // it was forgotten before
	}
	now := p.clock()
	if unknown, refused := rec.charges.giveUp(rec.reported(), now); unknown+refused > 0 {
		p.unsaid = append(p.unsaid, unsaid{rec.zone, unknown, errUnanswered}, unsaid{rec.zone, refused, errOpen})
	}
	if rec.ended(now) {
		p.forget(rec)
	}
}

// forget forgets a record. p.mu is held.
func (p *permits) forget(rec *record) {
	delete(p.records, rec.value)
	if p.deciding[rec.permits] == rec {
		delete(p.deciding, rec.permits)
	}
	p.unlist(rec)
	if p.charged = max(p.charged, rec.charges.total); p.charged > restart {
		p.charged = 0
	}
}

// endReported is called after the call that reports the end of a request, also if the call failed.
func (p *permits) endReported(rec *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rec.ending--; rec.ending == 0 && !rec.isKnown() {
		p.tellSoon(rec)
	}
	p.drop(rec)
}

// beginEnd notes that a request ends, and that its own call will report the zone's key. If the counter notifies, it
// first waits, until end at most, for a renewal of the key that is under way: that would make the charge, and a renewal
// cannot tell which thresholds a charge has reached.
func (p *permits) beginEnd(z *stores.ZoneCheck, end time.Time) {
	p.mu.Lock()
	rec := p.recordOf(z.Counter, z.Key, z.Tag)
	rec.ending++
	renewing := rec.renewing
	p.mu.Unlock()
	if renewing == nil || !z.Counter.Notifies {
		return
	}
	select {
	case <-renewing:
	case <-time.After(time.Until(end)):
	}
}

// end ends what a request holds, and adds the report of it to a call. at is the clock of the node.
func (p *permits) end(z *stores.ZoneCheck, charge int64, q *call, at *clock) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec := p.recordOf(z.Counter, z.Key, z.Tag)
	rec.zone.Counter = z.Counter // whose limits hold now
	if charge > 0 && len(z.Counter.Rules) > 0 {
		rec.charges.add(rec.unpaid(charge), p.clock())
	}
	permits := z.EndedPermits()
	p.add(rec, -permits, -z.HeldCost())
	rec.changed(p.number + 1)
	z.Permit.Taken = permits == 0
	q.peekUsed(p.prefix, z, at)
	q.reportOf(rec, at)
	q.peekUsed(p.prefix, z, at)
	return rec
}

// releaseLater ends what a request holds that Redis has admitted, without a call: the next report tells Redis. The
// caller charges the request elsewhere.
func (p *permits) releaseLater(z *stores.ZoneCheck) {
	permits := z.EndedPermits()
	p.held.Add(z, -permits, -z.HeldCost())
	p.note(z, -permits, -z.HeldCost())
	z.Permit.Taken = permits == 0
}

// giveUp releases the permits of a check whose reply cannot be used.
func (p *permits) giveUp(check *stores.Check) {
	for i := range check.Zones {
		if z := &check.Zones[i]; z.Permit.Taken {
			p.releaseLater(z)
			z.Permit = stores.Permit{}
		}
	}
}

// note records what a request took or released without Redis.
func (p *permits) note(z *stores.ZoneCheck, permits, cost int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rec := p.recordOf(z.Counter, z.Key, z.Tag)
	rec.held, rec.cost = rec.held+permits, rec.cost+cost
	p.changed(rec)
	p.drop(rec) // Redis need not hear of what it never knew
}

// any says whether there is work left: requests that hold permits, releases that Redis was not told of, or charges that
// were given up here and are not yet made without Redis.
func (p *permits) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.records)+len(p.unsaid) > 0
}
