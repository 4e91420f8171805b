package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// A denial stays one until its retry has passed, whatever others are charged
// meanwhile. So a request that costs as much as one that was denied a moment ago
// is denied without asking Redis. That is as exact as asking, while Redis keeps
// its memory; the numbers that are told with it may be higher by now.
//
// Nothing is remembered for longer than a second, nor when the connections to
// Redis change, when a call fails, when keys are forgotten, and when the rules
// are replaced. What unanswered requests hold may end at any moment, so that no
// denial of theirs is remembered.

const (
	denialSlots = 4096
	denialLasts = 1_000_000 // microseconds, at the most
)

// denials remember what items of denied asks were answered. Where two keys fall
// together, the later one is remembered.
type denials struct {
	slots   [denialSlots]atomic.Pointer[denial]
	dropped atomic.Uint64
}

// denial is what an item was answered that was part of a denied ask.
type denial struct {
	counter uint64 // its serial: the counter itself may be given up
	key     stores.Key
	cost    int64
	epoch   uint64
	sent    int64 // when Redis was asked, on the local clock
	now     int64 // on Redis' clock
	until   int64 // when the last denying rule would admit; 0: the item admits
	results []stores.Result
}

// clear forgets all denials.
func (d *denials) clear() {
	if d != nil {
		d.dropped.Add(1)
	}
}

func (d *denials) slot(z *stores.ZoneCheck) *atomic.Pointer[denial] {
	return &d.slots[cacheSlot(z, denialSlots)]
}

// find returns what an item was answered not long ago, or nil.
func (d *denials) find(z *stores.ZoneCheck, epoch uint64, now int64) *denial {
	n := d.slot(z).Load()
	if n == nil || n.key != z.Key || n.counter != prepare(z.Counter).serial || n.epoch != epoch || z.Cost < n.cost {
		return nil
	}
	if age := now - n.sent; age < 0 || age >= denialLasts {
		return nil
	}
	return n
}

// epoch changes whenever denials are not to be believed any more.
func (s *Store) epoch() uint64 {
	if s.denials == nil {
		return 0
	}
	return s.denials.dropped.Load() + s.conn.tracker.opened.Load()
}

// remembers says whether the ask's items can be denied from memory.
func (s *Store) remembers(check *stores.Check) bool {
	if s.denials == nil || check.Peek {
		return false
	}
	for i := range check.Zones {
		if place, _ := check.Zones[i].Holds(); place {
			return false
		}
	}
	return true
}

// denied answers an ask that is certain to be denied without asking Redis: one of
// its items still is, and of the others it is known what they said.
func (s *Store) denied(check *stores.Check) bool {
	if !s.remembers(check) {
		return false
	}
	now, epoch, certain := s.o.Clock(), s.epoch(), false
	var room [4]*denial
	found := room[:0]
	for i := range check.Zones {
		z := &check.Zones[i]
		n := s.denials.find(z, epoch, now)
		if n == nil {
			return false
		}
		certain = certain || !z.Shadow && n.until > now
		found = append(found, n)
	}
	if !certain {
		return false
	}
	check.Mode, check.Turn, check.Admitted = stores.ModeShared, 0, false
	for i, n := range found {
		recall(&check.Zones[i], n, now)
		check.Now = n.now + now - n.sent
	}
	return true
}

// recall fills in what an item was answered, with the time that has passed taken
// off.
func recall(z *stores.ZoneCheck, n *denial, now int64) {
	z.Rules = z.Counter.Rules
	z.Admits, z.Charged, z.Full, z.Overflowed, z.Permit = true, false, false, false, stores.Permit{}
	z.Results = append(z.Results[:0], n.results...)
	passed := now - n.sent
	for i := range z.Results {
		r := &z.Results[i]
		r.Reset = max(0, r.Reset-passed)
		switch {
		case z.Cost > z.Rules[i].Capacity():
			r.Verdict = algorithms.Verdict{Retry: algorithms.Never}
		case r.Admit || r.Retry == algorithms.Never:
		case r.Retry > passed:
			r.Retry -= passed
		default:
			r.Verdict = algorithms.Verdict{Admit: true}
		}
		z.Admits = z.Admits && r.Admit
	}
}

// remember notes what the items of a denied ask were answered, which was sent at
// an instant of the local clock.
func (s *Store) remember(check *stores.Check, sent int64, epoch uint64) {
	if check.Admitted || !s.remembers(check) {
		return
	}
	for i := range check.Zones {
		z := &check.Zones[i]
		n := &denial{counter: prepare(z.Counter).serial, key: z.Key, cost: z.Cost, epoch: epoch, sent: sent, now: check.Now}
		n.results = make([]stores.Result, len(z.Results))
		for r := range z.Results {
			res := &z.Results[r]
			n.results[r] = stores.Result{Verdict: res.Verdict, Remaining: res.Remaining, Reset: res.Reset}
			switch {
			case res.Admit:
			case res.Retry == algorithms.Never:
				n.until = sent + denialLasts
			default:
				n.until = max(n.until, sent+res.Retry)
			}
		}
		s.denials.slot(z).Store(n)
	}
}
