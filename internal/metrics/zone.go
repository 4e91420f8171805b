package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dianalimiter/diana/internal/stores"
)

// Zone is the metrics of one zone. The zero value counts nothing.
type Zone struct {
	// Counters count the zone's decisions; nil: they are not counted.
	Counters *Counters

	seconds prometheus.Observer // of the zone's store
	local   prometheus.Observer // of decisions in this process
}

// Count counts a decision in a shard, which may be any number. Requests on different
// processors should use different shards.
func (z *Zone) Count(o Outcome, shard uint32) {
	if z.Counters != nil {
		z.Counters.Count(o, shard)
	}
}

// CountBadCost counts a cost that is not an integer of at least 1.
func (z *Zone) CountBadCost() {
	if z.Counters != nil {
		z.Counters.badCosts.Add(1)
	}
}

// CountBadLimit counts a request that brought no limit, or one that is rejected.
func (z *Zone) CountBadLimit() {
	if z.Counters != nil {
		z.Counters.badLimits.Add(1)
	}
}

// CountUnknown counts a response that did not tell its cost.
func (z *Zone) CountUnknown() {
	if z.Counters != nil {
		z.Counters.unknown.Add(1)
	}
}

// CountSettled counts the cost of a request whose response tells it.
func (z *Zone) CountSettled(cost int64) {
	if z.Counters != nil {
		z.Counters.settled.Add(uint64(cost))
	}
}

// CountNear counts an allowed request after which little of a limit is left, in a shard as
// Count does.
func (z *Zone) CountNear(shard uint32) { z.Count(near, shard) }

// Observe observes the duration of a decision, under the store that made it: without the
// zone's store, that is this process.
func (z *Zone) Observe(took time.Duration, m stores.Mode) {
	switch {
	case z.seconds == nil:
	case isFallback(m):
		z.local.Observe(took.Seconds())
	default:
		z.seconds.Observe(took.Seconds())
	}
}

// CountFallback counts a decision that was made without the zone's store.
func (z *Zone) CountFallback(m stores.Mode) {
	if z.Counters != nil && isFallback(m) {
		z.Counters.fallbacks.Add(1)
	}
}

// isFallback reports whether a zone in a shared store was decided without it.
func isFallback(m stores.Mode) bool {
	return m == stores.ModeFallback || m == stores.ModeAllow || m == stores.ModeDeny
}
