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

	seconds  prometheus.Observer // of the zone's store
	local    prometheus.Observer // of decisions in this process
	badCost  prometheus.Counter
	badLimit prometheus.Counter
	unknown  prometheus.Counter
	settled  prometheus.Counter
	fallback prometheus.Counter
}

// Count counts a decision in a shard, which may be any number. Requests on different
// processors should use different shards.
func (z *Zone) Count(o Outcome, shard uint32) {
	if z.Counters != nil {
		z.Counters.count(o, shard)
	}
}

// CountDenied counts a denial by a rule, which a zone in shadow only reports.
func (z *Zone) CountDenied(rule string, shadow bool) {
	if z.Counters != nil {
		z.Counters.countDenied(rule, shadow)
	}
}

// CountBlock counts a block that a rule started.
func (z *Zone) CountBlock(rule string) {
	if z.Counters != nil {
		z.Counters.countBlock(rule)
	}
}

// CountBadCost counts a cost that is not an integer of at least 1.
func (z *Zone) CountBadCost() {
	if z.badCost != nil {
		z.badCost.Inc()
	}
}

// CountBadLimit counts a request that brought no limit, or one that is rejected.
func (z *Zone) CountBadLimit() {
	if z.badLimit != nil {
		z.badLimit.Inc()
	}
}

// CountUnknown counts a response that did not tell its cost.
func (z *Zone) CountUnknown() {
	if z.unknown != nil {
		z.unknown.Inc()
	}
}

// CountSettled counts the cost of a request whose response tells it.
func (z *Zone) CountSettled(cost int64) {
	if z.settled != nil {
		z.settled.Add(float64(cost))
	}
}

// CountNear counts an allowed request after which little of a limit is left, in a shard as
// Count does.
func (z *Zone) CountNear(shard uint32) {
	if z.Counters != nil {
		z.Counters.shards[shard%counterShards].near.Add(1)
	}
}

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
	if z.fallback != nil && isFallback(m) {
		z.fallback.Inc()
		z.Counters.fallbacks.Add(1)
	}
}

// isFallback reports whether a zone in a shared store was decided without it.
func isFallback(m stores.Mode) bool {
	return m == stores.ModeFallback || m == stores.ModeAllow || m == stores.ModeDeny
}
