package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dianalimiter/diana/stores"
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

// CountSettled counts the cost of a request whose response tells it, in a shard.
func (z *Zone) CountSettled(cost int64, shard uint32) {
	if z.Counters != nil {
		z.Counters.shards[shard%counterShards].counts[Settled].Add(uint64(cost))
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

// CountFallback counts a decision that was made without the zone's store, in a shard.
func (z *Zone) CountFallback(m stores.Mode, shard uint32) {
	if isFallback(m) {
		z.Count(Fallback, shard)
	}
}

// isFallback reports whether a zone in a shared store was decided without it.
func isFallback(m stores.Mode) bool {
	return m == stores.ModeFallback || m == stores.ModeAllow || m == stores.ModeDeny
}
