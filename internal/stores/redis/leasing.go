package redis

import (
	"context"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// How a request is decided with leases: each item whose cost is in hand is charged
// already, and Redis is asked for the others. If those are denied, what was taken
// is put back. What is in hand is good while Redis is away, too: it was charged.

// leaseEpoch changes whenever what is in hand is not to be spent any more.
func (s *Store) leaseEpoch() uint64 { return s.leases.dropped.Load() + s.conn.tracker.opened.Load() }

// lease decides an ask with what is in hand, or reports that there is nothing to
// do about it.
func (s *Store) lease(ctx context.Context, check *stores.Check) bool {
	if check.Peek || s.conn == nil {
		return false
	}
	if z := &check.Zones[0]; len(check.Zones) == 1 && !z.Reserve {
		return z.Counter.Lease > 0 && s.leaseOne(ctx, check, z)
	}
	for i := range check.Zones {
		if check.Zones[i].Counter.Lease > 0 {
			return s.leaseSome(ctx, check)
		}
	}
	return false
}

// leaseOne decides an ask of one item.
func (s *Store) leaseOne(ctx context.Context, check *stores.Check, z *stores.ZoneCheck) bool {
	now, epoch := s.o.Clock(), s.leaseEpoch()
	got := s.leases.take(z, now, epoch)
	switch {
	case got.taken:
		takeLeased(z, &got, now)
		decideLeased(check, got.last, now)
		if got.want > 0 {
			s.renew(ctx, z, got.want)
		}
	case got.until > 0:
		if !s.denied(check) {
			denyLeased(z, &got, now)
			decideLeased(check, got.last, now)
		}
	case got.want > 0:
		z.Lease = stores.LeaseRequest{Want: got.want, Granted: -1}
		s.decideUnleased(ctx, check)
		s.leases.settle(z, now, check.Now, epoch, false)
		z.Lease.Want = 0
	default:
		return false
	}
	return true
}

// renew asks for a lease alone. What it costs, too, is to be spent later.
func (s *Store) renew(ctx context.Context, z *stores.ZoneCheck, want int64) {
	one := stores.Check{Zones: []stores.ZoneCheck{{
		Counter: z.Counter, Key: z.Key, Tag: z.Tag, Group: z.Group, Cost: z.Cost, Lease: stores.LeaseRequest{Want: want, Granted: -1},
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
	s.leases.settle(&one.Zones[0], sent, one.Now, epoch, true)
}

// leaseSome decides an ask of several items, or of one whose cost is only held
// until another store has decided.
func (s *Store) leaseSome(ctx context.Context, check *stores.Check) bool {
	ctx, cancel := context.WithDeadline(ctx, s.end(ctx)) // there may be two calls
	defer cancel()
	got := make([]leaseAnswer, len(check.Zones))
	rest := stores.Check{Zones: make([]stores.ZoneCheck, 0, len(check.Zones)), Admitted: true}
	renewed := false
	for i := range check.Zones {
		z := &check.Zones[i]
		if z.Counter.Lease > 0 {
			got[i] = s.leaseItem(ctx, z, &renewed)
		}
		if !got[i].taken {
			rest.Zones = append(rest.Zones, *z)
		}
	}
	if len(rest.Zones) > 0 {
		s.decideUnleased(ctx, &rest)
	}
	s.join(check, &rest, got, s.o.Clock())
	return true
}

// leaseItem takes what one of several items costs from what is in hand. One of
// them may ask for more.
func (s *Store) leaseItem(ctx context.Context, z *stores.ZoneCheck, renewed *bool) leaseAnswer {
	now, epoch := s.o.Clock(), s.leaseEpoch()
	got := s.leases.take(z, now, epoch)
	switch {
	case got.want == 0:
	case *renewed:
		z.Lease.Granted = -1
		s.leases.settle(z, now, 0, epoch, false) // another request will
	default:
		*renewed = true
		s.renew(ctx, z, got.want)
		if !got.taken {
			got = s.leases.retake(z, s.o.Clock(), epoch)
		}
	}
	return got
}

// join puts together what Redis said of some items and what was in hand for the
// others.
func (s *Store) join(check, rest *stores.Check, got []leaseAnswer, now int64) {
	asked := 0
	check.Admitted, check.Turn, check.Mode, check.Now = rest.Admitted, rest.Turn, stores.ModeShared, rest.Now
	if len(rest.Zones) > 0 {
		check.Mode = rest.Mode
	}
	for i := range check.Zones {
		z, g := &check.Zones[i], &got[i]
		if !g.taken {
			*z = rest.Zones[asked]
			asked++
			continue
		}
		takeLeased(z, g, now)
		if len(rest.Zones) == 0 {
			check.Now = g.last.at(now)
		}
		switch {
		case !check.Admitted:
			s.leases.giveBack(z, z.Cost, g.end)
			z.Charged = false
			putBack(z)
		case z.Reserve:
			z.Permit.Lease = g.end
		}
	}
}

// finishLeased ends the hold of a cost that was taken from a lease.
func (s *Store) finishLeased(z *stores.ZoneCheck, charge int64) {
	if charge == 0 {
		s.leases.giveBack(z, z.Cost, z.Permit.Lease)
	}
	z.Permit.Lease = 0
}

// putBack says that the cost is still there.
func putBack(z *stores.ZoneCheck) {
	for r := range z.Results {
		z.Results[r].Remaining += z.Cost
	}
}

// decideLeased says what becomes of an ask of one item.
func decideLeased(check *stores.Check, w *lastWord, now int64) {
	z := &check.Zones[0]
	check.Mode, check.Turn, check.Now, check.Admitted = stores.ModeShared, 0, w.at(now), z.Admits || z.Shadow
}

// at is the instant on Redis' clock.
func (w *lastWord) at(now int64) int64 { return w.now + now - w.sent }

// recite fills in what Redis last said, with the time that has passed taken off.
func recite(z *stores.ZoneCheck, w *lastWord, left, now int64) {
	z.Rules = z.Counter.Rules
	z.Admits, z.Charged, z.Full, z.Overflowed, z.Permit = true, true, false, false, stores.Permit{}
	z.Results = append(z.Results[:0], w.results...)
	for i := range z.Results {
		r := &z.Results[i]
		r.Remaining, r.Reset = r.Remaining+left, max(0, r.Reset-(now-w.sent))
	}
}

// takeLeased answers an item whose cost was taken from what is in hand. What could
// still pass is what is left of that and what Redis last said; others may have
// taken of it since.
func takeLeased(z *stores.ZoneCheck, a *leaseAnswer, now int64) { recite(z, a.last, a.left, now) }

// denyLeased answers an item whose key was nearly used up when Redis was last
// asked.
func denyLeased(z *stores.ZoneCheck, a *leaseAnswer, now int64) {
	recite(z, a.last, a.left, now)
	z.Charged, z.Admits = false, true
	least := 0
	for i := range z.Results {
		r := &z.Results[i]
		if r.Verdict = a.last.rules[i].Judge(a.last.states[i], a.last.at(now), z.Cost, 0); !r.Admit {
			z.Admits = false
			if r.Retry != algorithms.Never {
				r.Retry = max(r.Retry, a.until-now)
			}
		}
		if r.Remaining < z.Results[least].Remaining {
			least = i
		}
	}
	if z.Admits {
		z.Admits = false
		z.Results[least].Verdict = algorithms.Verdict{Retry: a.until - now}
	}
	for i := range z.Results {
		if r := &z.Results[i]; !r.Admit {
			r.Remaining = min(r.Remaining, z.Cost-1)
		}
	}
}
