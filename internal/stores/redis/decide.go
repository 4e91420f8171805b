package redis

import (
	"context"
	"errors"

	"github.com/dianalimiter/diana/internal/stores"
)

// decider decides checks in Redis, from a remembered denial, or without Redis.
type decider struct {
	o        *Options
	conn     *conn
	denials  *denials // nil: none are remembered
	fallback *fallback
	permits  *permits
}

// decide decides a check without leases.
func (d *decider) decide(ctx context.Context, check *stores.Check) {
	unknown := false
	if d.fallback.usesRedis(check) {
		if d.denials.answer(check) {
			return
		}
		err := d.inRedis(ctx, check)
		if err == nil {
			return
		}
		unknown = mayHaveRun(err)
		d.conn.fail(err)
	}
	switch d.o.OnFailure {
	case FailAllow:
		d.skip(check, stores.ModeAllow, true)
	case FailDeny:
		d.skip(check, stores.ModeDeny, false)
	default:
		d.fallback.decide(check, unknown)
	}
}

// skip answers a check without counting anything.
func (d *decider) skip(check *stores.Check, m stores.Mode, admit bool) {
	check.Mode, check.Admitted, check.Turn, check.Now = m, true, 0, d.o.Clock()
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules, z.Results = nil, z.Results[:0]
		z.Admits, z.Charged, z.Full, z.Permit = admit, false, false, stores.Permit{}
		check.Admitted = check.Admitted && (admit || z.Shadow)
	}
}

// inRedis decides a check in Redis, and remembers a denial.
func (d *decider) inRedis(ctx context.Context, check *stores.Check) error {
	sent, epoch := d.o.Clock(), d.denials.epoch(d.conn.at(check.Zones[0].Tag))
	err := d.call(ctx, check)
	if err == nil {
		d.denials.remember(check, sent, epoch)
	}
	return err
}

// call runs the script for a check. The same call charges what the keys owe.
func (d *decider) call(ctx context.Context, check *stores.Check) error {
	debts := d.fallback.debts.takeAll(check)
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules = z.Counter.Rules
	}
	check.ResetResults()
	d.permits.assign(check)
	q := newCall(d.conn.end(ctx), check.Zones[0].Tag)
	for _, o := range debts {
		q.add(o.names, o.op)
	}
	q.decide(d.o.Prefix, check)
	r, now, err := d.conn.send(q)
	settle(debts, err)
	if err == nil {
		for range debts {
			r.byte()
		}
		err = d.read(check, &r, now)
	}
	d.permits.record(check, err)
	return err
}

// read sets the results of a check from the script's reply.
func (d *decider) read(check *stores.Check, r *reply, now int64) error {
	check.Mode, check.Now = stores.ModeShared, now
	for i := range check.Zones {
		stepped, err := r.readZone(&check.Zones[i], now)
		if errors.Is(err, errDisagree) { // Redis has charged by its own verdict, which stands
			d.conn.observer.get().StoreError(d.o.Name, FailWrong, err)
		} else if err != nil {
			return err
		}
		if stepped {
			d.conn.observer.get().ClockSteps(d.o.Name)
		}
	}
	if len(r.b) > 0 {
		return errReply
	}
	check.Settle()
	for i := range check.Zones {
		z := &check.Zones[i]
		countResults(z, now, check.TurnOf(z))
		d.fallback.learn(z, now)
	}
	return nil
}
