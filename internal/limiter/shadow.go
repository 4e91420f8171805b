package limiter

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/metrics"
)

// A zone in shadow is decided after those that enforce their rules, on its own, and denies nothing. Its result
// follows theirs in request.zones: what follows from the verdict, such as waiting, headers and the response,
// goes through request.enforcing and never meets it. This file has all that is different for it.

// shadow is a zone in shadow that applies to a request.
type shadow struct {
	zone   *Zone
	active *activeRules
}

// enforcing returns the results of the zones that enforce their rules.
func (q *request) enforcing() []zoneResult { return q.zones[:q.enforced] }

// addShadows adds the zones in shadow after those that enforce.
func (q *request) addShadows() {
	v, mayWait, checks := q.verdict, q.mayWait, len(q.check.Zones)
	for _, s := range q.shadows {
		q.add(s.zone, s.active)
	}
	q.verdict, q.mayWait, q.check.Shadows = v, mayWait, len(q.check.Zones)-checks
	for i := range q.check.Zones[checks:] {
		q.check.Zones[checks+i].WantsMore = false
	}
}

// shadowOutcome returns the outcome of a zone in shadow once all zones are decided.
func (q *request) shadowOutcome(z *zoneResult) metrics.Outcome {
	switch {
	case z.outcome == metrics.Denied:
		return metrics.ShadowDenied
	case z.outcome != metrics.Allowed:
		return z.outcome
	case q.unasked():
		return metrics.DeniedElsewhere
	case z.denies():
		return metrics.ShadowDenied
	case q.verdict != admitted:
		return metrics.DeniedElsewhere
	case z.rules != nil && z.rules.Delay() > 0:
		return metrics.ShadowDelayed
	}
	return metrics.Allowed
}

const eventShadowExceeded = "rate_limit_shadow_exceeded"

// reportShadow logs what a zone in shadow would have denied, and emits its event.
func (q *request) reportShadow(i int) {
	z := &q.zones[i]
	e := exceeded{zone: z.zone, retry: algorithms.Never}
	if e.label, e.cause = z.ownCause(); z.label == "" {
		e.retry = retryOf(waitIn(q.zones[i : i+1]))
	}
	z.zone.countedRule(e.label).CountShadowDenied()
	q.announce(&e, &z.zone.common.shadowLog, "rate limit would be exceeded", eventShadowExceeded)
}
