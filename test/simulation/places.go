package simulation

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

const (
	// reported is the longest that instances take to report what they hold after Redis lost
	// its memory or an outage is over, and renewed the longest until they notice that Redis
	// lost a single key or a replica what it lagged behind, or that its clock was set.
	reported = 3 * time.Second
	renewed  = 13 * time.Second

	// lapsed is after how long the permits of an instance that has died are free.
	lapsed = 32 * time.Second
)

// placesKnown says that all instances have reported what they hold, and Redis knows it,
// throughout a time. o.mu is held.
func (o *oracle) placesKnown(from, to time.Duration) bool {
	return len(o.touches(from-reported, to, func(s *span) bool { return s.away || s.loses || s.stepped })) == 0 &&
		len(o.touches(from-renewed, to, func(s *span) bool { return s.what == "evict" || s.lags() || s.stepped })) == 0
}

// free checks that a request is denied a place only if all are held. o.mu is held.
func (o *oracle) free(list []*request) {
	one := &o.w.plan.setup.sites[list[0].site]
	if one.Places == 0 {
		return
	}
	for _, q := range list {
		if q.answer != http.StatusTooManyRequests || q.admitted || q.lost || q.cancel > 0 || !o.placesKnown(q.start, q.end) || o.revived(q) || o.diedUnsure(list, q.start) || o.replicaKeeps(q) {
			continue
		}
		o.checked["free places"]++
		held := int64(0)
		for _, p := range list {
			if p.admitted && p.start <= q.end && o.heldUntil(list, p) >= q.start {
				held++
			}
		}
		if held < one.Places {
			o.violateLocked("a free place is given", fmt.Sprintf("denied while %d of %d places of site %d key %s were held", held, one.Places, q.site, q.key), q)
			return
		}
	}
}

// revived says whether Redis may count permits again that had lapsed, because its clock was set back in an outage:
// until they lapse once more. An instance does not tell of them any more that was without Redis for that long.
// o.mu is held.
func (o *oracle) revived(q *request) bool {
	return slices.ContainsFunc(o.spans, func(s *span) bool {
		return s.stepped && o.until(s) > s.to && s.from <= q.end && q.start <= o.until(s)+lapsed
	})
}

// diedUnsure says whether Redis may still have permits at an instant that an instance did not
// know of when it died, because replies were lost before, or it died while it waited for one or
// gave one back. o.mu is held.
func (o *oracle) diedUnsure(list []*request, at time.Duration) bool {
	return slices.ContainsFunc(o.spans, func(s *span) bool {
		if s.what != "die" || s.from > at || at >= s.from+lapsed && len(o.touches(s.from, at, isStep)) == 0 {
			return false
		}
		return len(o.touches(s.from-reported, s.from, isAway)) > 0 || slices.ContainsFunc(list, func(p *request) bool {
			waited := p.lost && !p.admitted && p.start <= s.from
			released := p.admitted && p.answered <= s.from && p.answered > s.from-reported
			return waited || released
		})
	})
}

// replicaKeeps says whether a replica that lagged may still have permits that were given back
// before it became the master: nobody reports them any more. o.mu is held.
func (o *oracle) replicaKeeps(q *request) bool {
	return len(o.touches(q.start-lapsed, q.end, (*span).lags)) > 0
}

// lags says whether a replica that may have lagged has become the master.
func (s *span) lags() bool { return s.what == "failover" || s.what == "isolate" }

// heldUntil returns until when a request's place may be held.
func (o *oracle) heldUntil(list []*request, p *request) time.Duration {
	if p.answered > 0 && !p.lost {
		return p.answered + time.Second
	}
	died := p.answered
	for _, s := range o.spans {
		if s.what == "die" && s.of == p.instance && s.from >= p.start {
			died = s.from
			break
		}
	}
	until := died + lapsed
	for _, s := range o.spans { // the lapse counts from the first check in Redis that finds a clock set back
		if !s.stepped || s.from < died || s.from > until {
			continue
		}
		i := slices.IndexFunc(list, func(q *request) bool {
			return q.start > s.to && q.asked() && len(o.touches(q.start, q.end, isAway)) == 0
		})
		if i < 0 {
			return o.w.now()
		}
		until = max(until, list[i].start+lapsed)
	}
	return until
}
