package limiter

import (
	"cmp"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/adaptive"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// heldRetry is the retry of a denial that ends when requests in flight do, which cannot
// be predicted.
const heldRetry = time.Second

// zoneResult is the decision of one zone.
type zoneResult struct {
	zone   *Zone
	active *activeRules // by which the request is decided; nil: the zone exempts it
	key    stores.Key
	set    *ruleSet // the rules that apply: the zone's or an override's

	rules     *stores.ZoneCheck // of the rules; nil: none
	duplicate *stores.ZoneCheck // of prevent_duplicates; nil: none

	label   string // label of an immediate denial; empty: none
	skipped string // why the request passes uncounted; empty: it does not

	cause   metrics.Cause // of an immediate denial
	outcome metrics.Outcome
	slot    slot // of the zone's waiting requests
	apart   bool // whether a shadow is counted apart from the zone, which another handler enforces

	place *adaptive.Ticket // nil: it has none
	spare *adaptive.Ticket // of earlier requests, to be used again; nil: none
}

// verdict is what was decided about a request. It is written by collect (refused), by decide and what it calls, and by
// reportLeft, when a client leaves while a leaky_bucket delays it. All later code reads it.
type verdict uint8

const (
	open        verdict = iota
	admitted            // by all zones
	denied              // by the stores
	refused             // by a zone, regardless of its counts: no store was asked
	crowded             // denied, because too many others wait
	unavailable         // denied, because a store is
	overloaded          // denied by in_flight adaptive, for want of a place: no store was asked
	left                // its client left while it waited
)

// conclude sets the verdict by the last decision of the stores.
func (q *request) conclude() {
	switch {
	case q.verdict != open:
	case q.check.Admitted, len(q.check.Zones) == 0:
		q.verdict = admitted
	case q.check.Mode == stores.ModeDeny:
		q.verdict = unavailable
	default:
		q.verdict = denied
	}
}

// decided reports whether the stores need not be asked again.
func (q *request) decided() bool {
	return q.verdict != open || len(q.check.Zones) == 0 || q.check.Admitted || q.check.Mode == stores.ModeDeny
}

// unasked reports whether the request is denied without having asked a store.
func (q *request) unasked() bool { return q.verdict == refused || q.verdict == overloaded }

// outcome returns the outcome of the request.
func (q *request) outcome() metrics.Outcome {
	switch {
	case q.verdict == left:
		return metrics.Left
	case q.verdict != admitted:
		return metrics.Denied
	case q.since != 0 || q.check.Turn > 0:
		return metrics.Delayed
	}
	return metrics.Allowed
}

// denies reports whether a zone's store denies.
func (z *zoneResult) denies() bool {
	return z.rules != nil && !z.rules.Admits || z.deniesDuplicate()
}

// isAsked reports whether a store decides the zone.
func (z *zoneResult) isAsked() bool { return z.rules != nil || z.duplicate != nil }

// inHeaders reports whether the rate limit headers include the zone.
func (z *zoneResult) inHeaders() bool { return !z.zone.noHeaders && z.rules != nil }

// waitIn returns how long the request would have to wait to be admitted if no other arrived. held says that it is denied
// because of what requests in flight hold, and nobody can predict their end. can is false if waiting does not help.
func waitIn(zones []zoneResult) (longest time.Duration, held, can bool) {
	for i := range zones {
		for _, c := range zones[i].checks() {
			if c == nil || c.Admits {
				continue
			}
			wait, holds, ends := waitOf(c)
			if !ends {
				return 0, false, false
			}
			longest, held = max(longest, wait), held || holds
		}
	}
	return longest, held, true
}

// waitOf is waitIn for a single zone check, one that denies.
func waitOf(c *stores.ZoneCheck) (longest time.Duration, held, can bool) {
	held = c.Full
	for r := range c.Results {
		switch res := &c.Results[r]; {
		case res.Admit:
		case res.Retry == algorithms.Never:
			return 0, false, false
		case res.Held:
			held = true
		default:
			longest = max(longest, time.Duration(res.Retry)*time.Microsecond)
		}
	}
	return longest, held, true
}

// retryOf returns the results of waitIn or waitOf as a time to retry after, in microseconds.
func retryOf(longest time.Duration, held, can bool) int64 {
	switch {
	case !can:
		return algorithms.Never
	case held:
		longest = max(longest, heldRetry)
	}
	return longest.Microseconds()
}

// exceeded returns the first rule that denies, in the order of the configuration, and
// the longest retry of all rules that do. If a store is unavailable, its zones
// deny first; with one store, these are all.
func (q *request) exceeded() *exceeded {
	if z := q.refuses; z != nil {
		return &exceeded{zone: z.zone, label: z.label, cause: z.cause, retry: cmp.Or(q.overload, algorithms.Never)}
	}
	e := new(exceeded)
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		if z := &zones[i]; z.denies() && (q.verdict != unavailable || q.modeOf(z) == stores.ModeDeny) {
			e.zone = z.zone
			e.label, e.cause = q.enforcedCause(z)
			break
		}
	}
	if q.verdict == unavailable {
		return &exceeded{zone: e.zone, label: labelStore, cause: metrics.CauseStore, retry: second}
	}
	e.retry = retryOf(waitIn(q.enforcing()))
	return e
}

// setOutcomes sets the outcomes of all zones once they are decided.
func (q *request) setOutcomes() {
	for i := range q.zones {
		if z := &q.zones[i]; i < q.enforced {
			z.outcome = q.outcomeOf(z)
		} else {
			z.outcome = q.shadowOutcome(z)
		}
	}
}

// outcomeOf returns the outcome of a zone that enforces its rules.
func (q *request) outcomeOf(z *zoneResult) metrics.Outcome {
	switch {
	case z.outcome != metrics.Allowed: // skipped, or an immediate denial
		return z.outcome
	case q.unasked(): // no store decided
		return metrics.DeniedElsewhere
	case q.verdict == left:
		return metrics.Left
	case z.denies():
		return metrics.Denied
	case q.verdict != admitted:
		return metrics.DeniedElsewhere
	}
	return q.outcome()
}

// isNear reports whether a rule of a zone has less than a fifth of its limit or burst left.
func (z *zoneResult) isNear() bool {
	c := z.rules
	if c == nil {
		return false
	}
	for r := range c.Results {
		if 5*c.Results[r].Remaining < c.Rules[r].Capacity() {
			return true
		}
	}
	return false
}

// violated returns the names of all rules that deny.
func (q *request) violated() (names []string) {
	if z := q.refuses; z != nil {
		return []string{z.zone.Name + "." + z.label}
	}
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		if c := z.rules; c != nil {
			for r := range c.Results {
				if !c.Results[r].Admit {
					names = append(names, z.set.Names[r])
				}
			}
			if c.Full {
				names = append(names, z.zone.Name+"."+labelInFlight)
			}
		}
		if z.deniesDuplicate() {
			names = append(names, z.zone.Name+"."+labelDuplicates)
		}
	}
	return names
}

// nearestOf returns the rule of a zone check that has the smallest part of its limit left, and its result. With
// denying, only rules that deny count. nil: there is none.
func nearestOf(c *stores.ZoneCheck, denying bool) (nearest *stores.Result, rule algorithms.Rule) {
	if len(c.Results) == 1 && !denying {
		return &c.Results[0], c.Rules[0]
	}
	for i, r := range c.Rules[:len(c.Results)] {
		res := &c.Results[i]
		if denying && res.Admit {
			continue
		}
		if nearest == nil || nearer(res.Remaining, r.Limit(), nearest.Remaining, rule.Limit()) {
			nearest, rule = res, r
		}
	}
	return nearest, rule
}

// nearest returns the result and the limit of the rule that has the smallest part of its limit left, among the zones
// that are in the headers and that wanted accepts; nil: it accepts all. On a denial it is a rule that denies, if any
// does. A nil result: there is no rule.
func (q *request) nearest(wanted func(*Zone) bool) (nearest *stores.Result, limit int64, denies bool) {
	for denies = q.verdict != admitted; ; denies = false {
		for i, zones := 0, q.enforcing(); i < len(zones); i++ {
			z := &zones[i]
			if !z.inHeaders() || wanted != nil && !wanted(z.zone) {
				continue
			}
			res, rule := nearestOf(z.rules, denies)
			if res != nil && (nearest == nil || nearer(res.Remaining, rule.Limit(), nearest.Remaining, limit)) {
				nearest, limit = res, rule.Limit()
			}
		}
		if nearest != nil || !denies {
			return nearest, limit, denies
		}
	}
}

// nearer reports whether less of a limit remains, as a part of it, than of another.
func nearer(remaining, limit, otherRemaining, otherLimit int64) bool {
	return float64(remaining)/float64(limit) < float64(otherRemaining)/float64(otherLimit)
}
