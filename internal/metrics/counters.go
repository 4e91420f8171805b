package metrics

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcome is what a zone decided.
type Outcome uint8

// What a zone decides.
const (
	Allowed Outcome = iota
	Denied
	Delayed
	Skipped
	ShadowDenied
	RefusedElsewhere
	numOutcomes
)

// String returns the outcome as metrics and placeholders show it.
func (o Outcome) String() string {
	return [...]string{"allowed", "denied", "delayed", "skipped", "shadow_denied", "refused_elsewhere"}[o]
}

// Counters count the decisions of a zone, in shards, so that processors that count
// at the same time do not contend for a cache line.
type Counters [counterShards]counterShard

const counterShards = 16

type counterShard struct {
	decided [numOutcomes]atomic.Uint64
	_       [128 - 8*numOutcomes]byte // two cache lines, which are fetched together
}

func (c *Counters) count(o Outcome, shard uint32) { c[shard%counterShards].decided[o].Add(1) }

// sum returns how often an outcome was decided.
func (c *Counters) sum(o Outcome) (sum uint64) {
	for i := range c {
		sum += c[i].decided[o].Load()
	}
	return sum
}

// zoneCounters are the counters of all zones that were ever configured.
type zoneCounters struct {
	mu    sync.Mutex
	zones map[string]*Counters
}

func (c *zoneCounters) zone(name string) *Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones[name] == nil {
		c.zones[name] = new(Counters)
	}
	return c.zones[name]
}

func (c *zoneCounters) read() map[string]map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	zones := make(map[string]map[string]uint64, len(c.zones))
	for name, z := range c.zones {
		zones[name] = make(map[string]uint64, numOutcomes)
		for o := range numOutcomes {
			zones[name][o.String()] = z.sum(o)
		}
	}
	return zones
}

var decisionsDesc = prometheus.NewDesc(Namespace+"_decisions_total", "Decisions, by zone and outcome.", []string{"zone", "decision"}, nil)

// Describe implements prometheus.Collector.
func (c *zoneCounters) Describe(ch chan<- *prometheus.Desc) { ch <- decisionsDesc }

// Collect implements prometheus.Collector.
func (c *zoneCounters) Collect(ch chan<- prometheus.Metric) {
	for zone, outcomes := range c.read() {
		for outcome, n := range outcomes {
			ch <- prometheus.MustNewConstMetric(decisionsDesc, prometheus.CounterValue, float64(n), zone, outcome)
		}
	}
}
