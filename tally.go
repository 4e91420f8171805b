package diana

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// tally counts the decisions of a zone. Requests that are decided at the same
// time count in different lanes: in one, its cache line would go to and fro
// between the processors with every request.
type tally [tallyLanes]tallyLane

const tallyLanes = 16

type tallyLane struct {
	decided [numOutcomes]atomic.Uint64
	_       [128 - 8*numOutcomes]byte // two cache lines, which are fetched together
}

// of adds up the lanes.
func (t *tally) of(o outcome) (sum uint64) {
	for i := range t {
		sum += t[i].decided[o].Load()
	}
	return sum
}

// tallyCollector shows the tallies of all zones there ever were. A zone's name
// is of the configuration, so there are few.
type tallyCollector struct {
	mu    sync.Mutex
	zones map[string]*tally
}

// zone is the tally of a zone.
func (c *tallyCollector) zone(name string) *tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones[name] == nil {
		c.zones[name] = new(tally)
	}
	return c.zones[name]
}

var decisionsDesc = prometheus.NewDesc(metricsNamespace+"_decisions_total", "Decisions, by zone and outcome.", []string{"zone", "decision"}, nil)

// Describe implements prometheus.Collector.
func (c *tallyCollector) Describe(ch chan<- *prometheus.Desc) { ch <- decisionsDesc }

// Collect implements prometheus.Collector.
func (c *tallyCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, t := range c.zones {
		for o := range numOutcomes {
			ch <- prometheus.MustNewConstMetric(decisionsDesc, prometheus.CounterValue, float64(t.of(o)), name, o.String())
		}
	}
}
