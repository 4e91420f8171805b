package limiter

import (
	"net/http"
	"time"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// Recorded is the decision about a request of a log, at the time of the process' clock. Nothing is
// reported, and nobody waits.
type Recorded struct {
	// Zones are the decisions of the zones that apply.
	Zones []RecordedZone

	// Err is the response of the handler if it denies: an error, or nil if it responds itself.
	Err error

	// Denied is set if the request is denied.
	Denied bool

	// Again is after how long it would ask again, if it may wait; 0: it does not.
	Again time.Duration

	q *request // that charges later; nil: it does not
}

// RecordedZone is the decision of one zone.
type RecordedZone struct {
	Zone    *Zone           // the zone
	Outcome metrics.Outcome // its decision
	Near    bool            // it is allowed, and a rule has less than a fifth of its limit left
	Key     stores.Key      // zero: none was needed
	Skipped string          // why it is skipped: exempt, unlimited, off or no key; empty: it is not
}

// Record decides about a request of a log that has waited for some time before.
func (l *Limiter) Record(r *http.Request, waited time.Duration) (d Recorded) {
	q := l.newRequest(nil, r)
	q.asks = true
	defer func() {
		if d.q == nil {
			q.release()
		}
	}()
	if d.Err = q.collect(); d.Err != nil || len(q.zones) == 0 {
		return d
	}
	if q.mayWait = false; q.needsStores(r.Context()) && len(q.check.Zones) > 0 { // nobody waits, or has a place
		q.ask(r.Context())
	}
	if q.conclude(); q.verdict != admitted {
		d.Again = q.recordedWait(waited)
	}
	q.since = -waited // by no clock: what matters is whether it did
	q.setOutcomes()
	for i := range q.zones {
		z := &q.zones[i]
		d.Zones = append(d.Zones, RecordedZone{z.zone, z.outcome, z.outcome == metrics.Allowed && z.isNear(), z.key, z.skipped})
	}
	var e *exceeded
	if d.Denied = q.verdict != admitted; d.Denied {
		e = q.exceeded()
	}
	if l.o.Placeholders {
		q.setPlaceholders(e)
	}
	if d.Denied {
		d.Err = l.denialOf(r, e.zone, q.verdict)
		return d
	}
	if l.repeats {
		q.notePassed()
	}
	if q.chargesLater() {
		d.q = q
	}
	return d
}

// recordedWait returns after how long a request that was denied asks again; 0: it does not.
func (q *request) recordedWait(waited time.Duration) time.Duration {
	if q.verdict == refused {
		return 0
	}
	_, _, budget := q.waitBudget()
	retry, held, can := waitIn(q.enforcing())
	if held {
		retry = max(retry, pollEvery)
	}
	if !can || retry <= 0 || waited+retry > budget {
		return 0
	}
	return retry
}

// Finish charges what depends on the response, and releases permits. Logs have 499 for a client that
// left before the response.
func (d *Recorded) Finish(status int) {
	if d.q != nil {
		end := config.Whole
		switch status {
		case 0:
			end = config.Never
		case statusGone:
			end = config.Gone
		}
		d.q.finish(&ending{Response: config.Response{Status: status, End: end}})
		d.q.release()
		d.q = nil
	}
}

// Later reports whether Finish must be called.
func (d *Recorded) Later() bool { return d.q != nil }
