package limiter

import (
	"context"
	"time"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/stores"
)

// decide sets the verdict. It asks the stores, and again after waiting if the zones have max_wait.
func (q *request) decide(ctx context.Context) (err error) {
	switch {
	case !q.needsStores(ctx):
	case q.mayWait:
		err = q.decideInTurn(ctx)
	default:
		err = q.decideOnce(ctx)
	}
	q.conclude()
	return err
}

// needsStores decides without the stores if it can, and returns whether it could not.
func (q *request) needsStores(ctx context.Context) bool {
	if q.verdict == refused {
		q.refuses = q.firstDenial() // nothing is charged
		return false
	}
	if len(q.check.Zones) == 0 && !q.l.places {
		return false
	}
	return !q.mayWait || q.acquireSlots(ctx) // before it waits: it may be delayed after that
}

// firstDenial returns the first zone that denies regardless of its counts.
func (q *request) firstDenial() *zoneResult {
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		if z := &zones[i]; z.label != "" {
			return z
		}
	}
	return nil
}

// timedEvery is the sampling interval of decisions in this process: one in 16 is timed,
// because two more readings of the clock take a good part of a decision's time.
const timedEvery = 16

// decideOnce asks the stores once.
func (q *request) decideOnce(ctx context.Context) error {
	if q.l.places {
		return q.decideInPlace(ctx)
	}
	q.ask(ctx)
	return nil
}

// decideInPlace takes places of in_flight adaptive, and then asks the stores. If they deny, it gives the places back.
// If rules change while the request waits for a place, it begins anew.
func (q *request) decideInPlace(ctx context.Context) error {
	for {
		switch q.takePlaces(ctx) {
		case placed:
			if len(q.check.Zones) == 0 {
				return nil
			}
			if q.ask(ctx); !q.check.Admitted {
				q.releasePlaces()
			}
			return nil
		case unplaced:
			return nil
		}
		if decided, err := q.collectAgain(ctx); decided || err != nil {
			return err
		}
	}
}

// ask asks the stores.
func (q *request) ask(ctx context.Context) {
	sampled := q.decisions%timedEvery == 0
	q.decisions++
	if q.l.counted == inStores {
		stores.Across(ctx, &q.check, q.stores)
		observeAcross(q.zones, sampled)
		return
	}
	store := q.store()
	if q.l.counted == inProcess && !sampled {
		store.Decide(ctx, &q.check)
		return
	}
	begun := clock.Elapsed()
	store.Decide(ctx, &q.check)
	took := clock.Elapsed() - begun - time.Duration(q.check.Waited)*time.Microsecond
	mode := q.check.Mode
	if sampled || mode == stores.ModeShared {
		q.l.zones[0].metrics.Observe(took, mode)
	}
}

// store returns the store of all zone checks, if they are in one.
func (q *request) store() stores.Store {
	if q.l.counted == inProcess {
		return q.l.zones[0].store.Store
	}
	return q.stores[0]
}

// observeAcross observes the decisions of several stores, each under the one who made it.
func observeAcross(zones []zoneResult, sampled bool) {
	for i := range zones {
		for _, c := range zones[i].checks() {
			if c != nil && c.Took > 0 && (sampled || c.Mode == stores.ModeShared) {
				zones[i].zone.metrics.Observe(c.Took, c.Mode)
			}
		}
	}
}

// modeOf returns who has decided about a zone, or would.
func (q *request) modeOf(z *zoneResult) (mode stores.Mode) {
	if q.l.counted != inStores {
		return q.check.Mode
	}
	for _, c := range z.checks() {
		if c != nil {
			mode = max(mode, c.Mode)
		}
	}
	return mode
}
