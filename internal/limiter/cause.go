package limiter

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// The decision of a request says that a zone denies; this file derives the cause. Where each cause is decided:
// docs/internals/architecture.md. It is shown by log.go (log line, event, access log, caddy_rate_limit_denied_total, top),
// placeholders.go, span.go and openaibody.go; of a described request or a key, by peek.go (explain, key).

// ownCause returns the label of the first rule by which a zone denies, and why, by the zone alone.
func (z *zoneResult) ownCause() (label string, cause metrics.Cause) {
	if z.label != "" {
		return z.label, z.cause
	}
	if c := z.rules; c != nil {
		for r := range c.Results {
			if !c.Results[r].Admit {
				return z.set.Labels[r], causeOf(c, r)
			}
		}
		if c.Full {
			return labelInFlight, causeFull(c)
		}
	}
	if z.duplicate != nil && len(z.duplicate.Results) > 0 {
		return labelDuplicates, metrics.CauseDuplicate
	}
	return labelStore, metrics.CauseStore
}

// enforcedCause returns what ownCause does, of a zone that enforces its rules. If the request left while it waited, or
// found no room to wait, that is the cause.
func (q *request) enforcedCause(z *zoneResult) (label string, cause metrics.Cause) {
	label, cause = z.ownCause()
	switch q.verdict {
	case left:
		cause = metrics.CauseLeft
	case crowded:
		cause = metrics.CauseWaiting
	}
	return label, cause
}

// shownCause returns the rule by which a zone did not admit the request, and why; none: it did. e is
// the denial of the request; nil: it was admitted.
func (q *request) shownCause(z *zoneResult, e *exceeded) (label string, cause metrics.Cause) {
	switch {
	case e != nil && e.zone == z.zone:
		return e.label, e.cause
	case z.outcome == metrics.Denied:
		return q.enforcedCause(z)
	case z.outcome == metrics.ShadowDenied:
		return z.ownCause()
	case z.outcome == metrics.Left:
		return "", metrics.CauseLeft
	}
	return "", metrics.CauseNone
}

// causeOf returns why rule r of a zone denies. Several causes may be true; the first one here is returned, such as share
// before held.
func causeOf(c *stores.ZoneCheck, r int) metrics.Cause {
	res, configured := &c.Results[r], c.Counter.Rules[r]
	switch {
	case c.Blocked():
		return metrics.CauseBlocked
	case res.Retry == algorithms.Never && c.Cost > configured.Capacity():
		return metrics.CauseTooLarge
	case c.Overflowed:
		return metrics.CauseOverflow
	case c.Rules[r].Capacity() < configured.Capacity():
		return metrics.CauseShare
	case res.Held:
		return metrics.CauseHeld
	}
	return metrics.CauseRule
}

// causeFull returns why a zone denies whose permits are all in use.
func causeFull(c *stores.ZoneCheck) metrics.Cause {
	if c.InFlight < c.Counter.InFlight {
		return metrics.CauseShare
	}
	return metrics.CauseInFlight
}
