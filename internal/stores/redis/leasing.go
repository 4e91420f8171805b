package redis

import (
	"context"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
)

// leasing decides checks with leases: a zone whose cost is leased is charged
// already, and Redis decides the others. If those are denied, the leased cost is
// put back. A lease is valid while Redis is unavailable, too: it was charged.
type leasing struct {
	decider *decider
	leases  *leases
}

// leasingOf returns what decides with leases; nil: there are none.
func leasingOf(d *decider, l *leases) *leasing {
	if l == nil {
		return nil
	}
	return &leasing{decider: d, leases: l}
}

// epoch changes whenever leases of a zone's node become invalid.
func (l *leasing) epoch(z *stores.ZoneCheck) uint64 {
	return l.leases.cleared.Load() + l.decider.conn.at(z.Tag).connected()
}

// decide decides a check with leases. It returns false if none are involved.
func (l *leasing) decide(ctx context.Context, check *stores.Check) bool {
	if check.Peek || l.decider.conn.client == nil {
		return false
	}
	if z := &check.Zones[0]; len(check.Zones) == 1 && !z.Reserve {
		return z.Counter.Lease > 0 && l.decideOne(ctx, check, z)
	}
	for i := range check.Zones {
		if check.Zones[i].Counter.Lease > 0 {
			return l.decideSeveral(ctx, check)
		}
	}
	return false
}

// decideOne decides a check of one zone.
func (l *leasing) decideOne(ctx context.Context, check *stores.Check, z *stores.ZoneCheck) bool {
	now, epoch := l.decider.o.Clock(), l.epoch(z)
	got := l.leases.draw(z, now, epoch)
	switch {
	case got.drawn:
		concludeLeased(check, l.admit(z, &got, now))
		if got.want > 0 {
			l.renew(ctx, z, got.want)
		}
	case got.until > 0:
		if !l.decider.recalls(check, now) {
			concludeLeased(check, l.deny(z, &got, now))
		}
	case got.want > 0:
		z.Lease = stores.LeaseRequest{Want: got.want, Granted: -1}
		l.decider.decide(ctx, check)
		l.leases.answered(z, now, check.Now, epoch, false)
		z.Lease.Want = 0
	default:
		return false
	}
	return true
}

// renew requests a lease in a call of its own. The cost of that call, too, is to
// be spent later.
func (l *leasing) renew(ctx context.Context, z *stores.ZoneCheck, want int64) {
	one := stores.Check{Zones: []stores.ZoneCheck{{
		Counter: z.Counter, Subject: z.Subject, Cost: z.Cost, Holding: stores.Holding{SeesHeld: z.SeesHeld}, StoreOnly: stores.StoreOnly{Lease: stores.LeaseRequest{Want: want, Granted: -1}},
	}}}
	sent, epoch := l.decider.o.Clock(), l.epoch(z)
	if l.decider.usesRedis(&one) {
		l.decider.fallback.Look(&one, sent)
		if err := l.decider.inRedis(ctx, &one, sent); err != nil {
			l.decider.conn.fail(err)
		}
	}
	l.leases.answered(&one.Zones[0], sent, one.Now, epoch, true)
}

// decideSeveral decides a check of several zones, or of one whose cost is only
// held until another store has decided.
func (l *leasing) decideSeveral(ctx context.Context, check *stores.Check) bool {
	ctx, cancel := context.WithDeadline(ctx, l.decider.conn.end(ctx)) // there may be two calls
	defer cancel()
	got := make([]leaseAnswer, len(check.Zones))
	rest := stores.Check{Zones: make([]stores.ZoneCheck, 0, len(check.Zones)), Admitted: true}
	renewed := false
	for i := range check.Zones {
		z := &check.Zones[i]
		if z.Counter.Lease > 0 {
			got[i] = l.draw(ctx, z, &renewed)
		}
		if !got[i].drawn {
			rest.Zones = append(rest.Zones, *z)
			if check.IsShadow(i) {
				rest.Shadows++
			}
		}
	}
	if len(rest.Zones) > 0 {
		l.decider.decide(ctx, &rest)
	}
	l.merge(check, &rest, got, l.decider.o.Clock())
	return true
}

// draw draws the cost of one of several zones from its lease. One of the zones
// may request another lease.
func (l *leasing) draw(ctx context.Context, z *stores.ZoneCheck, renewed *bool) leaseAnswer {
	now, epoch := l.decider.o.Clock(), l.epoch(z)
	got := l.leases.draw(z, now, epoch)
	switch {
	case got.want == 0:
	case *renewed:
		z.Lease.Granted = -1
		l.leases.answered(z, now, 0, epoch, false) // another request will
	default:
		*renewed = true
		l.renew(ctx, z, got.want)
		if !got.drawn {
			got = l.leases.drawAgain(z, l.decider.o.Clock(), epoch)
		}
	}
	return got
}

// merge combines what was decided for some zones with what was leased of the
// others.
func (l *leasing) merge(check, rest *stores.Check, got []leaseAnswer, now int64) {
	decided := 0
	check.Admitted, check.Turn, check.Mode, check.Now = rest.Admitted, rest.Turn, stores.ModeShared, rest.Now
	if len(rest.Zones) > 0 {
		check.Mode, check.Waited = rest.Mode, rest.Waited
	}
	for i := range check.Zones {
		z, g := &check.Zones[i], &got[i]
		if !g.drawn {
			*z = rest.Zones[decided]
			decided++
			continue
		}
		if at := l.admit(z, g, now); len(rest.Zones) == 0 {
			check.Now = at
		}
		switch {
		case !check.Admitted:
			l.leases.putBack(z, z.Cost, g.end)
			z.Charged = false
			for r := range z.Results {
				z.Results[r].Remaining += z.Cost
			}
		case z.Reserve:
			z.Permit.Lease = g.end
		}
	}
}

// finish ends the hold of a cost that was drawn from a lease.
func (l *leasing) finish(z *stores.ZoneCheck, charge int64) {
	if charge == 0 {
		l.leases.putBack(z, z.Cost, z.Permit.Lease)
	}
	z.Permit.Lease = 0
}

// concludeLeased sets the results of a check of one zone.
func concludeLeased(check *stores.Check, at int64) {
	z := &check.Zones[0]
	check.Mode, check.Turn, check.Now, check.Admitted = stores.ModeShared, 0, at, z.Admits || check.Shadows > 0
}

// recite sets a zone's results by what Redis last said of its key, and what is left of its lease. It
// returns the time by Redis' clock.
func (l *leasing) recite(z *stores.ZoneCheck, left, now int64) (at int64) {
	if at = outage.Recite(z, now); at == 0 { // nothing is known: there was no room for the snapshot, the key was reset, or a rule is no Handover
		at = l.decider.conn.at(z.Tag).clock.shared(now)
	}
	for i := range z.Results {
		z.Results[i].Remaining += left
	}
	return at
}

// admit sets the results of a zone whose cost was drawn from a lease. Other instances may have been
// charged since Redis was called.
func (l *leasing) admit(z *stores.ZoneCheck, a *leaseAnswer, now int64) (at int64) {
	at = l.recite(z, a.left, now)
	z.Charged, z.Admits = true, true
	for i := range z.Results {
		z.Results[i].Verdict = algorithms.Verdict{Admit: true}
	}
	return at
}

// deny sets the results of a zone whose key was nearly used up when Redis was last called, so that it is not
// called for a while (see leases). If by what Redis said each rule has something left, the rule with the least left
// denies all the same, until Redis is called again.
func (l *leasing) deny(z *stores.ZoneCheck, a *leaseAnswer, now int64) (at int64) {
	at = l.recite(z, a.left, now)
	postpone(z, l.decider.conn.at(z.Tag).clock.ahead(at, now))
	least, denies := 0, false
	for i := range z.Results {
		r := &z.Results[i]
		if !r.Admit {
			denies = true
			if r.Retry != algorithms.Never {
				r.Retry = max(r.Retry, a.until-now)
			}
		}
		if r.Remaining < z.Results[least].Remaining {
			least = i
		}
	}
	if z.Admits = false; !denies {
		z.Results[least].Verdict = algorithms.Verdict{Retry: a.until - now}
	}
	for i := range z.Results {
		if r := &z.Results[i]; !r.Admit {
			r.Remaining = min(r.Remaining, z.Cost-1)
		}
	}
	return at
}
