package limiter

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/stores"
)

// wait waits and decides again until the request is decided, at most for the shortest max_wait of the rules that deny
// it. It sets the verdict only if the request finds no room to wait (crowded) or its client leaves (left).
func (q *request) wait(ctx context.Context) error {
	since, budget := cmp.Or(q.since, clock.Elapsed()), time.Duration(math.MaxInt64)
	var p *waiter
	defer func() {
		if p != nil {
			p.leave()
		}
	}()
	for {
		z, k, b := q.waitBudget()
		retry, held, can := waitIn(q.enforcing())
		held = held || retry == 0 // an algorithm that denies and names no time is not asked continually
		budget = min(budget, b)
		most := budget - (clock.Elapsed() - since)
		if !can || most <= 0 || retry > most {
			return nil
		}
		counted := z.slot == waitingSlot // new rules may have changed it
		if p == nil || p.queue != &z.zone.common.queue || p.key != k || p.slot == counted {
			if p != nil {
				p.leave()
			}
			var ok bool
			if p, ok = z.zone.common.queue.join(k, z.zone.MaxWaiting, counted); !ok {
				q.verdict = crowded
				return nil
			}
		}
		if q.outdated() { // since before it joined
			signal(p.again)
		}
		q.since = since
		if gone, late := p.wait(ctx, retry, held, most); gone {
			q.verdict = left
			return nil
		} else if late {
			return nil
		}
		p.asks()
		if decided, err := q.decideAgain(ctx); decided || err != nil {
			return err
		}
	}
}

// decideAgain decides a request that has waited, and reports whether it is decided.
func (q *request) decideAgain(ctx context.Context) (decided bool, err error) {
	q.reportAllReached()
	if q.outdated() {
		if decided, err := q.collectAgain(ctx); decided || err != nil {
			return decided, err
		}
	}
	err = q.decideOnce(ctx)
	return q.decided(), err
}

// decideInTurn decides a request that may wait.
func (q *request) decideInTurn(ctx context.Context) error {
	if z := q.queued(); z != nil && q.standsBehind(ctx, z) {
		return q.wait(ctx)
	}
	if err := q.decideOnce(ctx); err != nil || q.decided() {
		return err
	}
	return q.wait(ctx)
}

// outdated reports whether rules have changed since the zones were collected.
func (q *request) outdated() bool {
	for i := range q.zones {
		if z := &q.zones[i]; z.active != nil && z.active != z.zone.active.Load() {
			return true
		}
	}
	return false
}

// collectAgain collects the zones anew for a request that waited while rules changed. The earlier rules have charged
// it nothing. It reports whether the request is decided.
func (q *request) collectAgain(ctx context.Context) (decided bool, err error) {
	if q.mayWait {
		q.releaseSlots()
	}
	before := q.decision
	q.reset()
	q.since, q.placeWait = before.since, before.placeWait
	if err := q.collect(); err != nil {
		return false, err
	}
	return !q.needsStores(ctx), nil
}

// waitBudget returns how long the request may wait in total, 0 if it may not, and the
// zone and key whose queue it joins: the first zone that denies, and its key.
func (q *request) waitBudget() (first *zoneResult, k stores.Key, budget time.Duration) {
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		if !z.denies() {
			continue
		}
		most := z.maxWait()
		if most == 0 {
			return nil, k, 0
		}
		if first == nil {
			first, k, budget = z, z.rules.Key, most
		}
		budget = min(budget, most)
	}
	return first, k, budget
}

// maxWait returns how long the request may wait for what denies it in the zone; 0: it may not. Duplicates do not wait, and
// neither do requests that find the queue of a leaky_bucket full: its length is the longest wait.
func (z *zoneResult) maxWait() time.Duration {
	if z.deniesDuplicate() {
		return 0
	}
	most := int64(math.MaxInt64)
	for r := range z.rules.Results {
		switch {
		case z.rules.Results[r].Admit:
		case z.set.Delays[r]:
			return 0
		default:
			most = min(most, z.set.Specs[r].MaxWait)
		}
	}
	if z.rules.Full || most == math.MaxInt64 {
		most = min(most, time.Duration(z.zone.MaxWait).Microseconds())
	}
	return time.Duration(most) * time.Microsecond
}

// mayDelay reports whether a leaky_bucket of the zone may delay the request.
func (z *zoneResult) mayDelay() bool { return z.rules != nil && z.set.MaxDelay > 0 }

// queued returns the first zone with in_flight whose queue the request must join, because
// older requests of its key wait in it; nil: none.
func (q *request) queued() *zoneResult {
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		if z.rules == nil || z.zone.MaxWait == 0 || z.set.counter.InFlight == 0 {
			continue
		}
		if z.zone.common.queue.has(z.key) {
			return z
		}
	}
	return nil
}

// standsBehind peeks at the decision of a request that must join the queue of a zone. It makes the zone deny the
// request until its turn comes, unless something else denies it for which it may not wait. It
// returns false if the store of the zone limits nothing now.
func (q *request) standsBehind(ctx context.Context, z *zoneResult) bool {
	q.peek(ctx)
	if q.isUnlimited(z) {
		return false
	}
	if !q.check.Admitted {
		if _, _, budget := q.waitBudget(); budget == 0 {
			q.startBlocks(ctx)
			return true // and does not wait
		}
	}
	q.check.DenyFull(z.rules)
	return true
}

// isUnlimited reports whether the store of a zone limits nothing now: it is unavailable, and on_failure is allow.
func (q *request) isUnlimited(z *zoneResult) bool { return q.modeOf(z) == stores.ModeAllow }

// peek evaluates all zones and charges nothing.
func (q *request) peek(ctx context.Context) {
	q.check.Peek = true
	q.ask(ctx)
	q.check.Peek = false
}

// startBlocks asks the stores about a request that a peek has denied, if a rule with a block may have denied it:
// a peek does not start the block.
func (q *request) startBlocks(ctx context.Context) {
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		if z.rules == nil || z.set.Blocks == nil {
			continue
		}
		if c := z.rules; !c.Admits && c.Block.Until == 0 {
			q.ask(ctx)
			return
		}
	}
}

// slot says how a request counts among the waiting requests of a zone, whose number is bounded.
type slot uint8

const (
	noSlot      slot = iota
	waitingSlot      // it counts as one
	passingSlot      // it passes the queue without waiting, and does not count
)

// acquireSlots acquires a slot in each zone that may delay the request, before the decision: a
// request that was given a turn is charged and cannot be denied any more. If a zone has no
// slot left, only a request that would not be delayed is decided.
func (q *request) acquireSlots(ctx context.Context) bool {
	var full *zoneResult // one without a slot; all that delay are in one store
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		switch {
		case !z.mayDelay():
		case z.zone.common.queue.acquireSlot(z.zone.MaxWaiting):
			z.slot = waitingSlot
		default:
			full = z
		}
	}
	if full == nil {
		return true
	}
	q.peek(ctx)
	if q.isUnlimited(full) {
		return true
	}
	if q.check.Admitted && q.check.Turn == 0 && q.passAll() {
		return true
	}
	if q.check.Admitted {
		q.denyDelays()
	} else {
		q.startBlocks(ctx)
	}
	q.releaseSlots()
	return false
}

// passAll lets the request pass the queues in which it has no slot, and reports whether it passes all of them.
func (q *request) passAll() bool {
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		if !z.mayDelay() || z.slot != noSlot {
			continue
		}
		if !z.zone.common.queue.pass(z.key) {
			return false
		}
		z.slot = passingSlot
	}
	return true
}

// releaseSlots releases what acquireSlots has acquired.
func (q *request) releaseSlots() {
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		switch z.slot {
		case waitingSlot:
			z.zone.common.queue.releaseSlot()
		case passingSlot:
			z.zone.common.queue.passed(z.key)
		}
		z.slot = noSlot
	}
}

// denyDelays denies a request for want of a slot, although the queue of the leaky_bucket has room.
func (q *request) denyDelays() {
	q.verdict = crowded
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		if z := &zones[i]; z.mayDelay() && z.slot == noSlot {
			q.check.DenyDelays(z.rules, z.set.Delays, heldRetry.Microseconds())
		}
	}
}
