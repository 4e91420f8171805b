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
	ShadowDelayed
	DeniedElsewhere
	numOutcomes
)

// String returns the outcome as metrics and placeholders show it.
func (o Outcome) String() string {
	return [...]string{"allowed", "denied", "delayed", "skipped", "shadow_denied", "shadow_delayed", "denied_elsewhere"}[o]
}

// Counters count the decisions of a zone by outcome, and its denials by rule. The zero
// value is ready for use.
type Counters struct {
	// Sharded, so that processors do not contend for one cache line.
	shards [counterShards]counterShard

	fallbacks atomic.Uint64 // decisions without the zone's store, as fallback_total

	users int // limiters with the zone; guarded by zoneCounters.mu

	mu     sync.Mutex
	denied map[string]*deniedRule
	recent atomic.Pointer[deniedRule] // the rule that denied last, to save the lock
}

const counterShards = 16

type counterShard struct {
	decided [numOutcomes]atomic.Uint64
	near    atomic.Uint64
	_       [120 - 8*numOutcomes]byte // pads to two cache lines, which are fetched together
}

type deniedRule struct {
	rule   string
	count  atomic.Uint64
	shadow atomic.Uint64 // denials that were only reported
	block  atomic.Uint64 // blocks that it started
	blocks bool          // whether it may start one; guarded by Counters.mu
	users  int           // active rules with a rule of this name; guarded by Counters.mu
}

// Hold adds rules whose denials and blocks are counted. Each must be dropped as often as it was
// added. blocking are those of them that start blocks: they have a count before the first, in
// which a Prometheus would otherwise see no increase.
func (c *Counters) Hold(rules, blocking []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.denied == nil {
		c.denied = make(map[string]*deniedRule)
	}
	for _, rule := range rules {
		if c.denied[rule] == nil {
			c.denied[rule] = &deniedRule{rule: rule}
		}
		c.denied[rule].users++
	}
	for _, rule := range blocking {
		c.denied[rule].blocks = true
	}
}

// Drop undoes one Hold. The count of a rule that nobody holds any more ends.
func (c *Counters) Drop(rules []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rule := range rules {
		if r := c.denied[rule]; r != nil {
			if r.users--; r.users == 0 {
				delete(c.denied, rule)
			}
		}
	}
	c.recent.Store(nil)
}

func (c *Counters) count(o Outcome, shard uint32) { c.shards[shard%counterShards].decided[o].Add(1) }

// Count counts a request in a shard, as [Zone.Count] does.
func (c *Counters) Count(o Outcome, shard uint32) { c.count(o, shard) }

// Move counts a request with another outcome than the one it was counted with before.
func (c *Counters) Move(before, after Outcome, shard uint32) {
	c.shards[shard%counterShards].decided[before].Add(^uint64(0))
	c.count(after, shard)
}

// Requests are numbers of requests, each counted once, as the admin API answers them.
type Requests struct {
	Allowed uint64 `json:"allowed"` // at once
	Denied  uint64 `json:"denied"`  // by any zone
	Delayed uint64 `json:"delayed"` // allowed after they waited
}

// Requests returns the numbers of requests so far.
func (c *Counters) Requests() Requests {
	return Requests{c.sum(Allowed), c.sum(Denied), c.sum(Delayed)}
}

// sum returns the number of decisions with an outcome.
func (c *Counters) sum(o Outcome) (sum uint64) {
	for i := range c.shards {
		sum += c.shards[i].decided[o].Load()
	}
	return sum
}

// sumNear returns the number of allowed requests after which little of a limit was left.
func (c *Counters) sumNear() (sum uint64) {
	for i := range c.shards {
		sum += c.shards[i].near.Load()
	}
	return sum
}

// countDenied counts a denial by a rule, which a zone in shadow only reports. It does nothing
// if the rule is gone, and only the request was decided with it.
func (c *Counters) countDenied(rule string, shadow bool) {
	r := c.recent.Load()
	if r == nil || r.rule != rule {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r = c.denied[rule]; r == nil {
			return
		}
		c.recent.Store(r)
	}
	if shadow {
		r.shadow.Add(1)
	} else {
		r.count.Add(1)
	}
}

// countBlock counts a block that a rule started, as countDenied does.
func (c *Counters) countBlock(rule string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.denied[rule]; r != nil {
		r.block.Add(1)
	}
}

// blocks returns the numbers of blocks by rule, of those that may start one; nil: none.
func (c *Counters) blocks() (all map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rule, r := range c.denied {
		if n := r.block.Load(); n > 0 || r.blocks {
			if all == nil {
				all = make(map[string]uint64)
			}
			all[rule] = n
		}
	}
	return all
}

// read returns the numbers of decisions by outcome, of denials by rule, and of denials that a
// zone in shadow only reported; nil: none.
func (c *Counters) read() (decisions, denied, shadow map[string]uint64) {
	decisions = make(map[string]uint64, numOutcomes)
	for o := range numOutcomes {
		decisions[o.String()] = c.sum(o)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for rule, r := range c.denied {
		denied, shadow = with(denied, rule, r.count.Load()), with(shadow, rule, r.shadow.Load())
	}
	return decisions, denied, shadow
}

// with adds a number to a map, which may be nil, unless it is 0.
func with(all map[string]uint64, name string, n uint64) map[string]uint64 {
	if n == 0 {
		return all
	}
	if all == nil {
		all = make(map[string]uint64)
	}
	all[name] = n
	return all
}

// zoneCounters are the counters of the zones in use, by name.
type zoneCounters struct {
	mu    sync.Mutex
	zones map[string]*Counters
}

// take returns the counters of a zone, to be released as often as taken.
func (c *zoneCounters) take(name string) *Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones[name] == nil {
		c.zones[name] = new(Counters)
	}
	c.zones[name].users++
	return c.zones[name]
}

// release undoes one take. It reports whether nobody uses the zone any more; then its
// counters end.
func (c *zoneCounters) release(name string) (last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	z := c.zones[name]
	if z == nil {
		return false
	}
	if z.users--; z.users > 0 {
		return false
	}
	delete(c.zones, name)
	return true
}

// get returns the counters of a zone; nil: it is not in use.
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
	nearDesc      = prometheus.NewDesc(Namespace+"_near_limit_total", "Allowed requests after which a rule had less than a fifth of its limit left, or of its burst.", []string{"zone"}, nil)
	deniedDesc    = prometheus.NewDesc(Namespace+"_denied_total", "Denied requests, by the zone and rule that denied them.", []string{"zone", "rule"}, nil)
	blocksDesc    = prometheus.NewDesc(Namespace+"_blocks_total", "Blocks of keys, by the zone and rule that started them.", []string{"zone", "rule"}, nil)
)

// Describe implements prometheus.Collector.
func (c *zoneCounters) Describe(ch chan<- *prometheus.Desc) {
	ch <- decisionsDesc
	ch <- deniedDesc
	ch <- blocksDesc
	ch <- nearDesc
}

// Collect implements prometheus.Collector.
func (c *zoneCounters) Collect(ch chan<- prometheus.Metric) {
	for zone, counters := range c.list() {
		decisions, denied, _ := counters.read()
		ch <- prometheus.MustNewConstMetric(nearDesc, prometheus.CounterValue, float64(counters.sumNear()), zone)
		for outcome, n := range decisions {
			ch <- prometheus.MustNewConstMetric(decisionsDesc, prometheus.CounterValue, float64(n), zone, outcome)
		}
		for rule, n := range denied {
			ch <- prometheus.MustNewConstMetric(deniedDesc, prometheus.CounterValue, float64(n), zone, rule)
		}
		for rule, n := range counters.blocks() {
			ch <- prometheus.MustNewConstMetric(blocksDesc, prometheus.CounterValue, float64(n), zone, rule)
		}
	}
}
