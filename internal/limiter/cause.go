package limiter

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// deniedBy is the deniedBy of a zone, but for the cause of a request that left, or that found no room to wait.
func (q *request) deniedBy(z *zoneResult) (label string, cause metrics.Cause) {
	label, cause = z.deniedBy()
	switch q.verdict {
	case left:
		cause = metrics.CauseLeft
	case crowded:
		cause = metrics.CauseWaiting
	}
	return label, cause
}

// deniedBy returns the label of the first rule by which a zone denies, and why it does.
func (z *zoneResult) deniedBy() (label string, cause metrics.Cause) {
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

// reason returns the rule by which a zone did not admit the request, and why; none: it did. e is
// the denial of the request; nil: it was admitted.
func (q *request) reason(z *zoneResult, e *exceeded) (label string, cause metrics.Cause) {
	switch {
	case e != nil && e.zone == z.zone:
		return e.label, e.cause
	case z.outcome == metrics.Denied:
		return q.deniedBy(z)
	case z.outcome == metrics.ShadowDenied:
		return z.deniedBy()
	case z.outcome == metrics.Left:
		return "", metrics.CauseLeft
	}
	return "", metrics.CauseNone
}

// causeOf returns why rule r of a zone denies: the first of these causes that is true. So without Redis it is share
// also where requests hold the rest.
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

// causeFull returns why a zone denies of which all permits are in use.
func causeFull(c *stores.ZoneCheck) metrics.Cause {
	if c.InFlight < c.Counter.InFlight {
		return metrics.CauseShare
	}
	return metrics.CauseInFlight
}
