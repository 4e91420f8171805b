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

	seconds  prometheus.Observer
	badCost  prometheus.Counter
	fallback prometheus.Counter
}

// Count counts a decision in a shard, which may be any number. Requests on different
// processors should use different shards.
func (z *Zone) Count(o Outcome, shard uint32) {
	if z.Counters != nil {
		z.Counters.count(o, shard)
	}
}

// CountDenied counts a denial by a rule.
func (z *Zone) CountDenied(rule string) {
	if z.Counters != nil {
		z.Counters.countDenied(rule)
	}
}

// CountBadCost counts a cost that is not a number of at least 1.
func (z *Zone) CountBadCost() {
	if z.badCost != nil {
		z.badCost.Inc()
	}
}

// Observe observes the duration of a decision, and counts it if it was made without the
// zone's store.
func (z *Zone) Observe(took time.Duration, m stores.Mode) {
	if z.seconds == nil {
		return
	}
	z.seconds.Observe(took.Seconds())
	switch m {
	case stores.ModeFallback, stores.ModeAllow, stores.ModeDeny:
		z.fallback.Inc()
	}
}
