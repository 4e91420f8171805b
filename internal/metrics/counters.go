package metrics

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcome is the decision of a zone.
type Outcome uint8

// Decisions of zones.
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

// Counters count the decisions of a zone by outcome, and its denials by rule. The zero
// value is ready for use.
type Counters struct {
	// Sharded, so that processors do not contend for one cache line.
	shards [counterShards]counterShard

	mu     sync.Mutex
	denied map[string]*atomic.Uint64
	recent atomic.Pointer[deniedRule] // the rule that denied last, to save the lock
}

const counterShards = 16

type counterShard struct {
	decided [numOutcomes]atomic.Uint64
	_       [128 - 8*numOutcomes]byte // pads to two cache lines, which are fetched together
}

type deniedRule struct {
	rule  string
	count *atomic.Uint64
}

func (c *Counters) count(o Outcome, shard uint32) { c.shards[shard%counterShards].decided[o].Add(1) }

// sum returns the number of decisions with an outcome.
func (c *Counters) sum(o Outcome) (sum uint64) {
	for i := range c.shards {
		sum += c.shards[i].decided[o].Load()
	}
	return sum
}

func (c *Counters) countDenied(rule string) {
	r := c.recent.Load()
	if r == nil || r.rule != rule {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.denied == nil {
			c.denied = make(map[string]*atomic.Uint64)
		}
		if c.denied[rule] == nil {
			c.denied[rule] = new(atomic.Uint64)
		}
		r = &deniedRule{rule, c.denied[rule]}
		c.recent.Store(r)
	}
	r.count.Add(1)
}

// read returns the numbers of decisions by outcome and of denials by rule; nil: none.
func (c *Counters) read() (decisions, denied map[string]uint64) {
	decisions = make(map[string]uint64, numOutcomes)
	for o := range numOutcomes {
		decisions[o.String()] = c.sum(o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for rule, n := range c.denied {
		if denied == nil {
			denied = make(map[string]uint64)
		}
		denied[rule] = n.Load()
	}
	return decisions, denied
}

// zoneCounters are the counters of all zones since the process started, by name.
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

// get returns the counters of a zone; nil: it was never configured.
func (c *zoneCounters) get(name string) *Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.zones[name]
}

func (c *zoneCounters) list() map[string]*Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.zones)
}

var (
	decisionsDesc = prometheus.NewDesc(Namespace+"_decisions_total", "Decisions, by zone and outcome.", []string{"zone", "decision"}, nil)
	deniedDesc    = prometheus.NewDesc(Namespace+"_denied_total", "Denied requests, by the zone and rule that denied them.", []string{"zone", "rule"}, nil)
)

// Describe implements prometheus.Collector.
func (c *zoneCounters) Describe(ch chan<- *prometheus.Desc) {
	ch <- decisionsDesc
	ch <- deniedDesc
}

// Collect implements prometheus.Collector.
func (c *zoneCounters) Collect(ch chan<- prometheus.Metric) {
	for zone, counters := range c.list() {
		decisions, denied := counters.read()
		for outcome, n := range decisions {
			ch <- prometheus.MustNewConstMetric(decisionsDesc, prometheus.CounterValue, float64(n), zone, outcome)
		}
		for rule, n := range denied {
			ch <- prometheus.MustNewConstMetric(deniedDesc, prometheus.CounterValue, float64(n), zone, rule)
		}
	}
}
