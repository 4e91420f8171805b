package stores

import (
	"context"

	"github.com/dianalimiter/diana/algorithms"
)

// How a request is decided with leases: each item whose cost is in hand is charged
// already, and Redis is asked for the others. If those are denied, what was taken
// is put back. What is in hand is good while Redis is away, too: it was charged.

// leaseEpoch changes whenever what is in hand is not to be spent any more.
func (s *Shared) leaseEpoch() uint64 { return s.leases.dropped.Load() + s.conn.links.opened.Load() }

// lease decides an ask with what is in hand, or reports that there is nothing to
// do about it.
func (s *Shared) lease(ctx context.Context, a *Ask) bool {
	if a.Look || s.conn == nil {
		return false
	}
	if it := &a.Items[0]; len(a.Items) == 1 && !it.Reserve {
		return it.Counter.Lease > 0 && s.leaseOne(ctx, a, it)
	}
	for i := range a.Items {
		if a.Items[i].Counter.Lease > 0 {
			return s.leaseSome(ctx, a)
		}
	}
	return false
}

// leaseOne decides an ask of one item.
func (s *Shared) leaseOne(ctx context.Context, a *Ask, it *Item) bool {
	now, epoch := s.o.Clock(), s.leaseEpoch()
	got := s.leases.take(it, now, epoch)
	switch {
	case got.taken:
		takeLeased(it, &got, now)
		decideLeased(a, got.last, now)
		if got.want > 0 {
			s.renew(ctx, it, got.want)
		}
	case got.until > 0:
		if !s.denied(a) {
			denyLeased(it, &got, now)
			decideLeased(a, got.last, now)
		}
	case got.want > 0:
		it.lease = leaseRequest{got.want, -1}
		s.decideUnleased(ctx, a)
		s.leases.settle(it, now, a.Now, epoch, false)
		it.lease.want = 0
	default:
		return false
	}
	return true
}

// renew asks for a lease alone. What it costs, too, is to be spent later.
func (s *Shared) renew(ctx context.Context, it *Item, want int64) {
	one := Ask{Items: []Item{{
		Counter: it.Counter, Key: it.Key, Tag: it.Tag, Group: it.Group, Cost: it.Cost, lease: leaseRequest{want, -1},
	}}}
	sent, epoch := s.o.Clock(), s.leaseEpoch()
	if s.asks(&one) {
		denials := s.epoch()
		if err := s.decide(ctx, &one); err == nil {
			s.remember(&one, sent, denials)
			s.breaker.success()
		} else {
			s.fail(err)
		}
	}
	s.leases.settle(&one.Items[0], sent, one.Now, epoch, true)
}

// leaseSome decides an ask of several items, or of one whose cost is only held
// until another store has decided.
func (s *Shared) leaseSome(ctx context.Context, a *Ask) bool {
	ctx, cancel := context.WithDeadline(ctx, s.end(ctx)) // there may be two calls
	defer cancel()
	got := make([]leaseAnswer, len(a.Items))
	rest := Ask{Items: make([]Item, 0, len(a.Items)), Admitted: true}
	renewed := false
	for i := range a.Items {
		it := &a.Items[i]
		if it.Counter.Lease > 0 {
			got[i] = s.leaseItem(ctx, it, &renewed)
		}
		if !got[i].taken {
			rest.Items = append(rest.Items, *it)
		}
	}
	if len(rest.Items) > 0 {
		s.decideUnleased(ctx, &rest)
	}
	s.join(a, &rest, got, s.o.Clock())
	return true
}

// leaseItem takes what one of several items costs from what is in hand. One of
// them may ask for more.
func (s *Shared) leaseItem(ctx context.Context, it *Item, renewed *bool) leaseAnswer {
	now, epoch := s.o.Clock(), s.leaseEpoch()
	got := s.leases.take(it, now, epoch)
	switch {
	case got.want == 0:
	case *renewed:
		it.lease.granted = -1
		s.leases.settle(it, now, 0, epoch, false) // another request will
	default:
		*renewed = true
		s.renew(ctx, it, got.want)
		if !got.taken {
			got = s.leases.retake(it, s.o.Clock(), epoch)
		}
	}
	return got
}

// join puts together what Redis said of some items and what was in hand for the
// others.
func (s *Shared) join(a, rest *Ask, got []leaseAnswer, now int64) {
	asked := 0
	a.Admitted, a.Turn, a.Mode, a.Now = rest.Admitted, rest.Turn, ModeShared, rest.Now
	if len(rest.Items) > 0 {
		a.Mode = rest.Mode
	}
	for i := range a.Items {
		it, g := &a.Items[i], &got[i]
		if !g.taken {
			*it = rest.Items[asked]
			asked++
			continue
		}
		takeLeased(it, g, now)
		if len(rest.Items) == 0 {
			a.Now = g.last.at(now)
		}
		switch {
		case !a.Admitted:
			s.leases.giveBack(it, it.Cost, g.end)
			it.Charged = false
			putBack(it)
		case it.Reserve:
			it.hold.lease = g.end
		}
	}
}

// finishLeased ends the hold of a cost that was taken from a lease.
func (s *Shared) finishLeased(it *Item, charge int64) {
	if charge == 0 {
		s.leases.giveBack(it, it.Cost, it.hold.lease)
	}
	it.hold.lease = 0
}

// putBack says that the cost is still there.
func putBack(it *Item) {
	for r := range it.Results {
		it.Results[r].Remaining += it.Cost
	}
}

// decideLeased says what becomes of an ask of one item.
func decideLeased(a *Ask, w *lastWord, now int64) {
	it := &a.Items[0]
	a.Mode, a.Turn, a.Now, a.Admitted = ModeShared, 0, w.at(now), it.Admits || it.Shadow
}

// at is the instant on Redis' clock.
func (w *lastWord) at(now int64) int64 { return w.now + now - w.sent }

// recite fills in what Redis last said, with the time that has passed taken off.
func recite(it *Item, w *lastWord, left, now int64) {
	it.Rules = it.Counter.Rules
	it.Admits, it.Charged, it.Full, it.Crowded, it.hold = true, true, false, false, hold{}
	it.Results = append(it.Results[:0], w.results...)
	for i := range it.Results {
		r := &it.Results[i]
		r.Remaining, r.Reset = r.Remaining+left, max(0, r.Reset-(now-w.sent))
	}
}

// takeLeased answers an item whose cost was taken from what is in hand. What could
// still pass is what is left of that and what Redis last said; others may have
// taken of it since.
func takeLeased(it *Item, a *leaseAnswer, now int64) { recite(it, a.last, a.left, now) }

// denyLeased answers an item whose key was nearly used up when Redis was last
// asked.
func denyLeased(it *Item, a *leaseAnswer, now int64) {
	recite(it, a.last, a.left, now)
	it.Charged, it.Admits = false, true
	least := 0
	for i := range it.Results {
		r := &it.Results[i]
		if r.Verdict = a.last.rules[i].Judge(a.last.states[i], a.last.at(now), it.Cost, 0); !r.Admit {
			it.Admits = false
			if r.Retry != algorithms.Never {
				r.Retry = max(r.Retry, a.until-now)
			}
		}
		if r.Remaining < it.Results[least].Remaining {
			least = i
		}
	}
	if it.Admits {
		it.Admits = false
		it.Results[least].Verdict = algorithms.Verdict{Retry: a.until - now}
	}
	for i := range it.Results {
		if r := &it.Results[i]; !r.Admit {
			r.Remaining = min(r.Remaining, it.Cost-1)
		}
	}
}
