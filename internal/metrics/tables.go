package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Table is a table of keys in this process.
type Table interface {
	// Keys returns the number of keys that the table knows.
	Keys() int64

	// Overflows returns the number of charges to counters that several keys share.
	Overflows() uint64

	// Unblocked returns the number of denials that started no block, because it is full.
	Unblocked() uint64
}

// Tables collects the metrics of the tables of the running configuration.
type Tables struct {
	mu     sync.Mutex
	tables map[Table]*tableUse
}

// tableUse is the zone of a table and the number of handlers that use it.
type tableUse struct {
	zone  string
	users int
}

// Add adds a table of a zone. A table is collected until it is removed as often as added.
func (c *Tables) Add(zone string, t Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables[t] == nil {
		c.tables[t] = &tableUse{zone: zone}
	}
	c.tables[t].users++
}

// Remove undoes one Add.
func (c *Tables) Remove(t Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.tables[t]; u != nil {
		if u.users--; u.users == 0 {
			delete(c.tables, t)
		}
	}
}

var (
	keysDesc      = prometheus.NewDesc(Namespace+"_keys", "Keys kept in this process, by zone: of a zone in Redis, those that it knows for an outage.", []string{"zone"}, nil)
	overflowDesc  = prometheus.NewDesc(Namespace+"_overflow_total", "Charges to counters that several keys share, because the zone is full.", []string{"zone"}, nil)
	unblockedDesc = prometheus.NewDesc(Namespace+"_unblocked_total", "Denials by a rule with block that blocked nobody, because the zone is full. A zone without any has no such series.", []string{"zone"}, nil)
)

// Describe implements prometheus.Collector.
func (c *Tables) Describe(ch chan<- *prometheus.Desc) {
	ch <- keysDesc
	ch <- overflowDesc
	ch <- unblockedDesc
}

// Collect implements prometheus.Collector.
func (c *Tables) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys, overflows, unblocked := make(map[string]float64), make(map[string]float64), make(map[string]float64)
	for t, u := range c.tables {
		keys[u.zone] += float64(t.Keys())
		overflows[u.zone] += float64(t.Overflows())
		unblocked[u.zone] += float64(t.Unblocked())
	}
	for zone := range keys {
		ch <- prometheus.MustNewConstMetric(keysDesc, prometheus.GaugeValue, keys[zone], zone)
		ch <- prometheus.MustNewConstMetric(overflowDesc, prometheus.CounterValue, overflows[zone], zone)
		if n := unblocked[zone]; n > 0 {
			ch <- prometheus.MustNewConstMetric(unblockedDesc, prometheus.CounterValue, n, zone)
		}
	}
}
