package redis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
)

// decider decides checks in Redis, by what Redis last said, or without Redis.
type decider struct {
	o        *Options
	conn     *conn
	recent   *recent
	fallback *outage.Fallback
	permits  *permits
}

// decide decides a check without leases.
func (d *decider) decide(ctx context.Context, check *stores.Check) {
	var err error
	check.Waited = 0
	if d.usesRedis(check) {
		now := d.o.Clock()
		if d.recalls(check, now) {
			return
		}
		if err = d.inRedis(ctx, check, now); err == nil {
			return
		}
		d.conn.fail(err)
	}
	switch d.o.OnFailure {
	case stores.FailAllow:
		check.Skip(stores.ModeAllow, d.o.Clock())
	case stores.FailDeny:
		check.Skip(stores.ModeDeny, d.o.Clock())
	default:
		d.fallback.Decide(check, err)
	}
}

// recalls decides a check without a call if what Redis last said of its keys denies it. It does not if a reply for
// other keys has shown since then that Redis' clock was set forward.
func (d *decider) recalls(check *stores.Check, now int64) bool {
	n := d.conn.at(check.Zones[0].Tag)
	if !d.fallback.Look(check, now) || !d.fallback.Recall(check, now, d.recent.since(&n.server, now)) {
		return false
	}
	ahead := n.clock.ahead(check.Now, now)
	for i := range check.Zones {
		postpone(&check.Zones[i], ahead)
	}
	return ahead >= 0
}

// postpone lengthens the waits of a denial by how far the time of its decision may be ahead of Redis' clock: a client
// that waits as long is not denied again.
func postpone(z *stores.ZoneCheck, ahead int64) {
	for i := range z.Results {
		if r := &z.Results[i]; !r.Admit && r.Retry != algorithms.Never {
			r.Retry += max(ahead, 0)
		}
	}
}

// usesRedis says whether Redis decides a check. After an outage of a node, Redis decides more and more of its keys. A
// key changes from this instance to Redis once: if it changed several times, two limits would apply to it.
func (d *decider) usesRedis(check *stores.Check) bool {
	n := d.conn.at(check.Zones[0].Tag)
	if !d.conn.calls(n) {
		return false
	}
	back := n.back.Load()
	if back == 0 || d.o.OnFailure != stores.FailLocal {
		return true
	}
	elapsed := d.o.Clock() - back - n.pause() // since it decides the first keys
	if elapsed >= (ramp - shortestPause).Microseconds() {
		n.back.CompareAndSwap(back, 0)
		return true
	}
	for i := range check.Zones {
		if int64(check.Zones[i].Key.Lo>>44)*(ramp-shortestPause).Microseconds() >= elapsed<<20 {
			return false
		}
	}
	return true
}

// inRedis decides a check in Redis. sent is the present time.
func (d *decider) inRedis(ctx context.Context, check *stores.Check, sent int64) error {
	err := d.call(ctx, check, sent)
	if err != nil {
		check.Waited = d.o.Clock() - sent
	}
	return err
}

// call runs the script for a check. The same call hands over what this instance knows of
// keys that Redis has lost, and what the keys owe. If Redis finds only now that it has
// lost a key, it charges nothing, and is called again.
func (d *decider) call(ctx context.Context, check *stores.Check, sent int64) error {
	end := d.conn.end(ctx)
	clock := &d.conn.at(check.Zones[0].Tag).clock
	hands := d.fallback.Hands.TakeAll(check, d.o.instant(sent, clock.shared(sent)))
	err := d.callOnce(check, end, hands)
	if errors.Is(err, errOutside) { // the reply has brought the node's time
		d.fallback.Look(check, sent)
		hands = d.fallback.Hands.TakeAll(check, d.o.instant(sent, clock.shared(sent)))
		err = d.callOnce(check, end, hands)
	}
	if errors.Is(err, errLost) {
		hands = d.fallback.Hands.TakeLost(check)
		err = d.callOnce(check, end, hands)
	}
	if isMoving(err) && (len(hands) > 0 || slices.ContainsFunc(check.Zones, seesHeld)) {
		err = d.callFirstKeys(check, end)
	}
	return err
}

// callFirstKeys runs the script once without the second keys of zones that hold nothing, which the
// node may not have. They are read again by the next call.
func (d *decider) callFirstKeys(check *stores.Check, end time.Time) error {
	saw := make([]bool, len(check.Zones))
	for i := range check.Zones {
		z := &check.Zones[i]
		saw[i], z.Known, z.SeesHeld = z.SeesHeld, false, false
	}
	err := d.callOnce(check, end, nil)
	for i := range saw {
		z := &check.Zones[i]
		if z.SeesHeld = saw[i]; saw[i] {
			d.fallback.Ask(z)
		}
	}
	return err
}

// seesHeld reports whether a zone sends a second key that it needs only to see what other requests hold.
func seesHeld(z stores.ZoneCheck) bool {
	permit, _ := z.Holds()
	return z.SeesHeld && !permit
}

// overtakenPause is how long a check that was overtaken waits for the replies to the calls of its key
// that are under way.
const overtakenPause = time.Millisecond

// callOnce runs the script for a check and the handovers of its keys. It repeats the check if it was overtaken.
func (d *decider) callOnce(check *stores.Check, end time.Time, hands []outage.Handover) error {
	err := d.attempt(check, end, hands)
	for errors.Is(err, errOvertaken) { // until end at most
		time.Sleep(min(overtakenPause, time.Until(end)))
		err = d.attempt(check, end, nil)
	}
	return err
}

// attempt runs the script once, for a check and the handovers of its keys.
func (d *decider) attempt(check *stores.Check, end time.Time, hands []outage.Handover) error {
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Enforced = z.Counter.Whole()
		z.CutCost(z.Rules)
	}
	check.ResetResults()
	q := newCall(end, check.Zones[0].Tag)
	q.checks = true
	n := d.conn.at(check.Zones[0].Tag)
	at := &n.clock
	for i := range hands {
		q.handOver(d.o.Prefix, &hands[i], at)
	}
	replaced := d.permits.replace(q, check, at)
	for i := range check.Zones {
		q.peekUsed(d.o.Prefix, &check.Zones[i], at)
	}
	q.decide(d.o.Prefix, check, at)
	left := d.o.Clock()
	n.notice(left)
	r, now, err := d.conn.send(q)
	sent := err
	if err == nil {
		err = d.read(check, &r, d.o.instant(left, now), hands, replaced)
	}
	d.fallback.Hands.EndCall(hands, sent) // but for those that have failed alone
	if err != nil {
		for i := range check.Zones {
			check.Zones[i].Lease.Granted = -1 // whatever a part of the reply said
		}
		d.permits.giveUp(check)
	}
	return err
}

// read sets the results of a check from the script's reply, which begins with those of handovers and
// of reports.
func (d *decider) read(check *stores.Check, r *reply, at memory.Instant, hands []outage.Handover, reports int) error {
	now := at.Shared
	replaces := func(int) bool { return false }
	var refused error // of a handover
	if len(hands) > 0 {
		put := make([]bool, len(check.Zones))
		for i := range hands {
			h := &hands[i]
			part, err := r.refused()
			d.fallback.Hands.Answered(h, part, err)
			refused = cmp.Or(refused, err)
			put[h.At] = put[h.At] || h.Replaces(part, err)
		}
		replaces = func(zone int) bool { return put[zone] }
	}
	for range reports {
		_, _ = r.refused() // the record says what has to be told again
	}
	for i := range check.Zones {
		if err := r.readUsed(&check.Zones[i], stores.Before, now); err != nil {
			return err
		}
	}
	if err := r.failed(); err != nil {
		return err
	}
	if refused != nil && !errors.Is(refused, errOutside) {
		d.conn.fail(refused)
	}
	check.Mode, check.Now = stores.ModeShared, now
	lost := false
	for i := range check.Zones {
		stepped, err := r.readZone(&check.Zones[i], now)
		switch {
		case errors.Is(err, errLost):
			lost = true
		case errors.Is(err, errDisagree): // Redis has charged by its own verdict, which stands
			d.conn.observer.get().StoreError(d.o.Name, stores.FailWrong, advise(stores.FailWrong, err))
		case err != nil:
			return err
		}
		if stepped {
			d.conn.observer.get().ClockSteps(d.o.Name)
		}
	}
	if len(r.b) > 0 {
		return errReply
	}
	if lost {
		return errLost
	}
	check.Conclude()
	for i := range check.Zones {
		z := &check.Zones[i]
		if !z.Blocked() { // otherwise nothing of its states was reported
			d.fallback.Learn(z, at, replaces(i), func() { countResults(z, now, check.TurnOf(i)) })
			setUsed(z, now)
		}
		if z.Block.Until > 0 {
			d.fallback.LearnBlock(z, at)
		}
	}
	return nil
}
