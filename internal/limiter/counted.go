package limiter

import (
	"slices"

	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/metrics"
)

// MeetsOthers notes that a request may meet this handler and another, or this one twice: it is
// counted once.
func (l *Limiter) MeetsOthers() { l.meets.Store(true) }

// countRequest counts the request once, however many zones and handlers it meets: as denied if
// one of them denies it. A request that passes uncounted everywhere is not counted.
func (q *request) countRequest(o metrics.Outcome) {
	if q.l.o.DisableMetrics || o == metrics.Allowed && len(q.check.Zones) == 0 && q.uncounted() {
		return
	}
	all := &q.l.env.Metrics.Requests
	if !q.l.meets.Load() {
		all.Count(o, q.shard)
		return
	}
	v := q.visit()
	switch {
	case !v.counted:
		all.Count(o, q.shard)
	case v.outcome == metrics.Denied || o == metrics.Allowed:
		return
	default:
		all.Move(v.outcome, o, q.shard)
	}
	v.outcome, v.counted = o, true
}

// reportLeft counts a request that a leaky_bucket delays as left, and not as delayed: its client
// left meanwhile. What it was charged before it waited stays charged; what it holds is released.
func (q *request) reportLeft() {
	q.verdict = left
	for i := range q.zones {
		z := &q.zones[i]
		if z.outcome != metrics.Delayed {
			continue
		}
		if z.outcome = metrics.Left; z.zone.metrics.Counters != nil {
			z.zone.metrics.Counters.Move(metrics.Delayed, metrics.Left, q.shard)
		}
		if p := visitOf(q.r.Context()).met(z.zone.Name); p != nil {
			p.outcome = metrics.Left
		}
		if q.l.o.Placeholders {
			z.replaceDecision(key.Replacer(q.r))
		}
	}
	switch {
	case q.l.o.DisableMetrics:
	case q.l.meets.Load():
		q.countRequest(metrics.Left)
	default:
		q.l.env.Metrics.Requests.Move(metrics.Delayed, metrics.Left, q.shard)
	}
	if q.l.o.Spans {
		q.addToSpan(nil)
	}
	if q.l.o.AccessLogs {
		q.addToAccessLog(nil, 0)
	}
}

// uncounted reports whether the request passes every zone uncounted.
func (q *request) uncounted() bool {
	return !slices.ContainsFunc(q.zones, func(z zoneResult) bool { return z.outcome != metrics.Skipped })
}
