package limiter

import (
	"context"
	"time"

	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/internal/stores"
)

// decide has the stores decide, and again after waiting if the zones have max_wait. It
// reports whether the client closed the connection meanwhile.
func (q *request) decide(ctx context.Context) (gone bool) {
	for i := range q.zones {
		if z := &q.zones[i]; z.label != "" && !z.shadow {
			q.immediate = z // nothing is charged, so the stores need not decide
			return false
		}
	}
	if len(q.check.Zones) == 0 {
		q.check.Admitted = true
		return false
	}
	q.decideOnce(ctx)
	if q.check.Admitted || q.unavailable() {
		return false
	}
	return q.wait(ctx)
}

// timedEvery is the sampling interval of decisions in this process: one in 16 is timed,
// because two more readings of the clock take a good part of a decision's time.
const timedEvery = 16

func (q *request) decideOnce(ctx context.Context) {
	sampled := q.decided%timedEvery == 0
	q.decided++
	if q.l.across {
		stores.Across(ctx, &q.check, q.stores)
		q.observeAcross(sampled)
		return
	}
	if q.l.zones[0].store.local() && !sampled {
		q.stores[0].Decide(ctx, &q.check)
		return
	}
	begun := clock.Elapsed()
	q.stores[0].Decide(ctx, &q.check)
	took := clock.Elapsed() - begun - time.Duration(q.check.Failed)*time.Microsecond
	mode := q.check.Mode
	if sampled || mode == stores.ModeShared {
		q.l.zones[0].metrics.Observe(took, mode)
	}
	for i := range q.zones {
		if z := &q.zones[i]; z.rules >= 0 || z.duplicate >= 0 {
			z.zone.metrics.CountFallback(mode)
		}
	}
}

// observeAcross observes the decisions of several stores, each under the one who made it.
func (q *request) observeAcross(sampled bool) {
	for i := range q.zones {
		z, mode := &q.zones[i], stores.ModeLocal
		for _, at := range [...]int{z.rules, z.duplicate} {
			if at < 0 {
				continue
			}
			c := &q.check.Zones[at]
			if c.Took > 0 && (sampled || c.Mode == stores.ModeShared) {
				z.zone.metrics.Observe(c.Took, c.Mode)
			}
			mode = max(mode, c.Mode)
		}
		z.zone.metrics.CountFallback(mode)
	}
}

// wait waits, at most for the shortest max_wait of the zones that deny, and decides
// again. It reports whether the client closed the connection.
func (q *request) wait(ctx context.Context) (gone bool) {
	z, k, budget := q.waitBudget()
	if budget == 0 {
		return false
	}
	begun := time.Now()
	w, ok := z.common.queue.join(k)
	if !ok {
		return false
	}
	defer z.common.queue.leave(k, w)
	for {
		left := budget - time.Since(begun)
		retry, can := q.retryIn()
		if !can || retry > left {
			return false
		}
		if gone, late := w.wait(ctx, retry, left); gone || late {
			return gone
		}
		q.waited = true
		q.decideOnce(ctx)
		if q.check.Admitted || q.unavailable() {
			return false
		}
		_, _, b := q.waitBudget()
		if b == 0 {
			return false
		}
		budget = min(budget, b)
	}
}

// waitBudget returns how long the request may wait in total, 0 if it may not, and the
// zone and key whose queue it joins: those of the first zone that denies.
func (d *decision) waitBudget() (first *Zone, k stores.Key, budget time.Duration) {
	for i := range d.zones {
		z := &d.zones[i]
		if z.shadow || !d.denies(z) {
			continue
		}
		// Duplicates do not wait, and neither do requests that find the queue of a
		// leaky_bucket full: its length is the longest wait.
		if z.zone.maxWait == 0 || d.deniesDuplicate(z) || d.queueIsFull(z) {
			return nil, k, 0
		}
		if first == nil {
			first, k, budget = z.zone, d.check.Zones[z.rules].Key, z.zone.maxWait
		}
		budget = min(budget, z.zone.maxWait)
	}
	return first, k, budget
}

// queueIsFull reports whether a leaky_bucket that delays denies.
func (d *decision) queueIsFull(z *zoneResult) bool {
	for r, res := range d.check.Zones[z.rules].Results {
		if !res.Admit && z.set.Delays[r] {
			return true
		}
	}
	return false
}
