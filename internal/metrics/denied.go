package metrics

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// DeniedCounters count the denials of a zone by rule.
type DeniedCounters struct {
	mu     sync.Mutex
	rules  map[string]*atomic.Uint64
	recent atomic.Pointer[deniedRule] // the rule that denied last, which most often denies next
}

type deniedRule struct {
	rule  string
	count *atomic.Uint64
}

func (d *DeniedCounters) count(rule string) {
	r := d.recent.Load()
	if r == nil || r.rule != rule {
		r = &deniedRule{rule, d.rule(rule)}
		d.recent.Store(r)
	}
	r.count.Add(1)
}

func (d *DeniedCounters) rule(rule string) *atomic.Uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rules == nil {
		d.rules = make(map[string]*atomic.Uint64)
	}
	if d.rules[rule] == nil {
		d.rules[rule] = new(atomic.Uint64)
	}
	return d.rules[rule]
}

func (d *DeniedCounters) read() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	rules := make(map[string]uint64, len(d.rules))
	for rule, n := range d.rules {
		rules[rule] = n.Load()
	}
	return rules
}

// deniedCounters are those of all zones that were ever configured.
type deniedCounters struct {
	mu    sync.Mutex
	zones map[string]*DeniedCounters
}

func (c *deniedCounters) zone(name string) *DeniedCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones[name] == nil {
		c.zones[name] = new(DeniedCounters)
	}
	return c.zones[name]
}

// read returns the zones in which something was denied.
func (c *deniedCounters) read() map[string]map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	zones := make(map[string]map[string]uint64)
	for name, z := range c.zones {
		if rules := z.read(); len(rules) > 0 {
			zones[name] = rules
		}
	}
	return zones
}

var deniedDesc = prometheus.NewDesc(Namespace+"_denied_total", "Denied requests, by the zone and rule that denied them.", []string{"zone", "rule"}, nil)

// Describe implements prometheus.Collector.
func (c *deniedCounters) Describe(ch chan<- *prometheus.Desc) { ch <- deniedDesc }

// Collect implements prometheus.Collector.
func (c *deniedCounters) Collect(ch chan<- prometheus.Metric) {
	for zone, rules := range c.read() {
		for rule, n := range rules {
			ch <- prometheus.MustNewConstMetric(deniedDesc, prometheus.CounterValue, float64(n), zone, rule)
		}
	}
}
