package redis

import (
	"errors"

	"github.com/dianalimiter/diana/stores"
)

// With notify, the call that charges also peeks at the key before the charge and, after a response,
// behind it. A report charges other requests too, so that what is used does not follow from the cost
// of this one.

// usedOf returns the check that tells what a zone has used.
func usedOf(z *stores.ZoneCheck) stores.ZoneCheck {
	return stores.ZoneCheck{
		Counter: z.Counter, Subject: z.Subject, Cost: 1, IgnoreBlock: true,
		Enforced: z.Counter.Whole(), Results: make([]stores.Result, len(z.Counter.Rules)),
	}
}

// peekUsed adds the operation that tells what a zone has used, if its counter notifies.
func (q *call) peekUsed(prefix string, z *stores.ZoneCheck, at *clock) {
	if z.Counter.Notifies {
		q.decide(prefix, &stores.Check{Peek: true, Zones: []stores.ZoneCheck{usedOf(z)}}, at)
	}
}

// readUsed reads the reply to what peekUsed added.
func (r *reply) readUsed(z *stores.ZoneCheck, when int, now int64) error {
	if !z.Counter.Notifies {
		return nil
	}
	peeked := usedOf(z)
	if err := r.readPeek(&peeked, now); err != nil {
		return err
	}
	for i := range z.Results[:min(len(z.Results), len(peeked.Results))] {
		res := &peeked.Results[i]
		z.Results[i].SetUsed(when, res.Rule, res.State, now)
	}
	return nil
}

// readPeek reads the reply to a peek at one zone.
func (r *reply) readPeek(z *stores.ZoneCheck, now int64) error {
	if err := r.failed(); err != nil {
		return err
	}
	if _, err := r.readZone(z, now); err != nil && !errors.Is(err, errDisagree) {
		return err
	}
	return r.err
}

// readCharge reads the reply to a charge after a response, which is between two peeks if the
// counter notifies.
func (r *reply) readCharge(z *stores.ZoneCheck, now int64) {
	if z.Counter.Notifies && r.readUsed(z, stores.Before, now) == nil && r.failed() == nil {
		r.byte()
		_ = r.readUsed(z, stores.After, now)
	}
}

// setUsed sets what is used after a decision.
func setUsed(z *stores.ZoneCheck, now int64) {
	if !z.Counter.Notifies {
		return
	}
	for i := range z.Results {
		res := &z.Results[i]
		res.SetUsed(stores.After, res.Rule, res.State, now)
	}
}
