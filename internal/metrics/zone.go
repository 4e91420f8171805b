package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dianalimiter/diana/internal/stores"
)

// Zone is the metrics of one zone, looked up once. The zero value counts nothing.
type Zone struct {
	// Counters are the zone's decisions; nil: they are not counted.
	Counters *Counters

	seconds  prometheus.Observer
	badCost  prometheus.Counter
	fallback prometheus.Counter
}

// Count counts a decision. Requests of different processors should give different
// shards; any number will do.
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

// CountBadCost counts a cost that was no number of at least 1.
func (z *Zone) CountBadCost() {
	if z.badCost != nil {
		z.badCost.Inc()
	}
}

// Observe observes how long a decision took, and whether it was made without the
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
