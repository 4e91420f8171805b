package stores

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
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
	key     Key
	cost    int64
	epoch   uint64
	sent    int64 // when Redis was asked, on the local clock
	now     int64 // on Redis' clock
	until   int64 // when the last denying rule would admit; 0: the item admits
	results []Result
}

// drop forgets all denials.
func (d *denials) drop() {
	if d != nil {
		d.dropped.Add(1)
	}
}

func (d *denials) slot(it *Item) *atomic.Pointer[denial] {
	return &d.slots[cacheSlot(it, denialSlots)]
}

// find returns what an item was answered not long ago, or nil.
func (d *denials) find(it *Item, epoch uint64, now int64) *denial {
	n := d.slot(it).Load()
	if n == nil || n.key != it.Key || n.counter != prepare(it.Counter).serial || n.epoch != epoch || it.Cost < n.cost {
		return nil
	}
	if age := now - n.sent; age < 0 || age >= denialLasts {
		return nil
	}
	return n
}

// epoch changes whenever denials are not to be believed any more.
func (s *Shared) epoch() uint64 {
	if s.denials == nil {
		return 0
	}
	return s.denials.dropped.Load() + s.conn.links.opened.Load()
}

// remembers says whether the ask's items can be denied from memory.
func (s *Shared) remembers(a *Ask) bool {
	if s.denials == nil || a.Look {
		return false
	}
	for i := range a.Items {
		if place, _ := a.Items[i].holds(); place {
			return false
		}
	}
	return true
}

// denied answers an ask that is certain to be denied without asking Redis: one of
// its items still is, and of the others it is known what they said.
func (s *Shared) denied(a *Ask) bool {
	if !s.remembers(a) {
		return false
	}
	now, epoch, certain := s.o.Clock(), s.epoch(), false
	var room [4]*denial
	found := room[:0]
	for i := range a.Items {
		it := &a.Items[i]
		n := s.denials.find(it, epoch, now)
		if n == nil {
			return false
		}
		certain = certain || !it.Shadow && n.until > now
		found = append(found, n)
	}
	if !certain {
		return false
	}
	a.Mode, a.Turn, a.Admitted = ModeShared, 0, false
	for i, n := range found {
		recall(&a.Items[i], n, now)
		a.Now = n.now + now - n.sent
	}
	return true
}

// recall fills in what an item was answered, with the time that has passed taken
// off.
func recall(it *Item, n *denial, now int64) {
	it.Rules = it.Counter.Rules
	it.Admits, it.Charged, it.Full, it.Crowded, it.hold = true, false, false, false, hold{}
	it.Results = append(it.Results[:0], n.results...)
	passed := now - n.sent
	for i := range it.Results {
		r := &it.Results[i]
		r.Reset = max(0, r.Reset-passed)
		switch {
		case it.Cost > it.Rules[i].Capacity():
			r.Verdict = algorithms.Verdict{Retry: algorithms.Never}
		case r.Admit || r.Retry == algorithms.Never:
		case r.Retry > passed:
			r.Retry -= passed
		default:
			r.Verdict = algorithms.Verdict{Admit: true}
		}
		it.Admits = it.Admits && r.Admit
	}
}

// remember notes what the items of a denied ask were answered, which was sent at
// an instant of the local clock.
func (s *Shared) remember(a *Ask, sent int64, epoch uint64) {
	if a.Admitted || !s.remembers(a) {
		return
	}
	for i := range a.Items {
		it := &a.Items[i]
		n := &denial{counter: prepare(it.Counter).serial, key: it.Key, cost: it.Cost, epoch: epoch, sent: sent, now: a.Now}
		n.results = make([]Result, len(it.Results))
		for r := range it.Results {
			res := &it.Results[r]
			n.results[r] = Result{Verdict: res.Verdict, Remaining: res.Remaining, Reset: res.Reset}
			switch {
			case res.Admit:
			case res.Retry == algorithms.Never:
				n.until = sent + denialLasts
			default:
				n.until = max(n.until, sent+res.Retry)
			}
		}
		s.denials.slot(it).Store(n)
	}
}
