package limiter

import (
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores"
)

// Labels of what denies beside the rules.
const (
	labelInFlight   = "in_flight"
	labelDuplicates = config.LabelDuplicates
	labelKeyMissing = "key_missing"
	labelStore      = "store" // it is away, and on_failure is deny
)

// heldRetry is how long to wait for requests whose end nobody knows.
const heldRetry = time.Second

// decision is what the zones that apply decide about one request.
type decision struct {
	check stores.Check
	zones []zoneResult // in order

	// immediate is the first zone that denies whatever is counted; nil: none.
	immediate *zoneResult

	waited bool // for room, before the stores decided again
}

// zoneResult is what one zone decides.
type zoneResult struct {
	zone   *Zone
	shadow bool // as it was in force when the request came
	key    stores.Key
	set    *ruleSet // the rules that apply: the zone's or an override's

	rules     int // the number of the rules' zone check; -1: none
	duplicate int // the number of prevent_duplicates' zone check; -1: none

	label   string // of the rule that denies whatever is counted; empty: none
	outcome metrics.Outcome
}

// exceeded is what denied a request. Like the placeholders it outlives the handler.
type exceeded struct {
	zone  *Zone
	label string
	retry int64 // microseconds, or algorithms.Never

	answer [2]string // the values of Retry-After and Cache-Control
	limits headers   // the rate limit headers of the answer
}

// passes reports whether the request goes on.
func (d *decision) passes() bool { return d.immediate == nil && d.check.Admitted }

// unavailable reports whether a store denies everything, because it is away.
func (d *decision) unavailable() bool {
	return d.immediate == nil && d.check.Mode == stores.ModeDeny && !d.check.Admitted
}

// denies reports whether a zone's store denies.
func (d *decision) denies(z *zoneResult) bool {
	return z.rules >= 0 && !d.check.Zones[z.rules].Admits || d.deniesDuplicate(z)
}

// retryIn returns after how long the request would pass if nobody else came; false
// if it never would.
func (d *decision) retryIn() (time.Duration, bool) {
	var longest time.Duration
	for i := range d.check.Zones {
		c := &d.check.Zones[i]
		if c.Shadow || c.Admits {
			continue
		}
		if c.Full {
			longest = max(longest, heldRetry)
		}
		for _, res := range c.Results {
			switch {
			case res.Admit:
			case res.Retry == algorithms.Never:
				return 0, false
			case res.Held:
				longest = max(longest, heldRetry)
			default:
				longest = max(longest, time.Duration(res.Retry)*time.Microsecond)
			}
		}
	}
	return longest, true
}

// exceeded returns the first rule that denies, as written, and the longest retry of
// all that do.
func (d *decision) exceeded() (e exceeded) {
	if d.immediate != nil {
		return exceeded{zone: d.immediate.zone, label: d.immediate.label, retry: algorithms.Never}
	}
	for i := range d.zones {
		if z := &d.zones[i]; !z.shadow && d.denies(z) {
			e.zone, e.label = z.zone, d.labelOf(z)
			break
		}
	}
	if d.unavailable() {
		return exceeded{zone: e.zone, label: labelStore, retry: second}
	}
	retry, can := d.retryIn()
	if e.retry = retry.Microseconds(); !can {
		e.retry = algorithms.Never
	}
	return e
}

// labelOf returns the first rule of a zone that denies.
func (d *decision) labelOf(z *zoneResult) string {
	if z.rules >= 0 {
		c := &d.check.Zones[z.rules]
		for r, res := range c.Results {
			if !res.Admit {
				return z.set.Labels[r]
			}
		}
		if c.Full {
			return labelInFlight
		}
	}
	if z.duplicate >= 0 && len(d.check.Zones[z.duplicate].Results) > 0 {
		return labelDuplicates
	}
	return labelStore
}

// outcomeOf returns what a zone decided, when all is decided.
func (d *decision) outcomeOf(z *zoneResult) metrics.Outcome {
	switch {
	case z.outcome != metrics.Allowed: // skipped, or denied whatever is counted
		return z.outcome
	case d.immediate != nil: // nothing else was checked
		return metrics.RefusedElsewhere
	case z.shadow && d.denies(z):
		return metrics.ShadowDenied
	case d.denies(z):
		return metrics.Denied
	case !d.passes():
		return metrics.RefusedElsewhere
	case !z.shadow && (d.waited || d.check.Turn > 0):
		return metrics.Delayed
	}
	return metrics.Allowed
}

// violated returns the names of all rules that deny.
func (d *decision) violated() (names []string) {
	if d.immediate != nil {
		return []string{d.immediate.zone.Name + "." + d.immediate.label}
	}
	for i := range d.zones {
		z := &d.zones[i]
		if z.shadow {
			continue
		}
		if z.rules >= 0 {
			c := &d.check.Zones[z.rules]
			for r, res := range c.Results {
				if !res.Admit {
					names = append(names, z.set.Names[r])
				}
			}
			if c.Full {
				names = append(names, z.zone.Name+"."+labelInFlight)
			}
		}
		if d.deniesDuplicate(z) {
			names = append(names, z.zone.Name+"."+labelDuplicates)
		}
	}
	return names
}

// nearestOf returns the result of the rule that has the smallest part of its limit
// left, and the limit.
func nearestOf(c *stores.ZoneCheck) (nearest *stores.Result, limit int64) {
	for i := range c.Results {
		res, l := &c.Results[i], c.Rules[i].Limit()
		if nearest == nil || nearer(res, l, nearest, limit) {
			nearest, limit = res, l
		}
	}
	return nearest, limit
}

func nearer(a *stores.Result, limitA int64, b *stores.Result, limitB int64) bool {
	return float64(a.Remaining)/float64(limitA) < float64(b.Remaining)/float64(limitB)
}
