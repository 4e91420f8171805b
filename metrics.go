package diana

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// metrics are counted for the process, and shown by whichever configuration
// runs, so that they are still true after a reload. No label has a value that
// an outsider could choose.
type metrics struct {
	decisions   *tallyCollector
	denied      *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	badCost     *prometheus.CounterVec
	storeUp     *prometheus.GaugeVec
	storeErrors *prometheus.CounterVec
	fallback    *prometheus.CounterVec
	clockSteps  *prometheus.CounterVec
	tables      *tableCollector
	rulesErrors prometheus.Counter
}

const metricsNamespace = "caddy_rate_limit"

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: metricsNamespace, Name: name, Help: help}, labels)
}

// theMetrics are made once.
var theMetrics = sync.OnceValue(func() *metrics {
	return &metrics{
		decisions: &tallyCollector{zones: make(map[string]*tally)},
		denied:    counter("denied_total", "Denied requests, by the zone and rule that denied them.", "zone", "rule"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "decision_seconds", Help: "How long decisions took, by store. Of those made in this process, one in 16 is timed.",
			Buckets: []float64{1e-6, 5e-6, 25e-6, 1e-4, 25e-5, 5e-4, 1e-3, 25e-4, 5e-3, 1e-2, 25e-3, 5e-2, 0.1, 0.5},
		}, []string{"store"}),
		badCost: counter("bad_cost_total", "Costs that were no number of at least 1 and counted as 1.", "zone"),
		storeUp: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "store_up", Help: "Whether the store is asked (1) or this instance goes on without it (0).",
		}, []string{"store"}),
		storeErrors: counter("store_errors_total", "Failed calls to the store, by kind.", "store", "kind"),
		fallback:    counter("fallback_total", "Decisions that were made without the zone's store.", "zone"),
		clockSteps:  counter("clock_steps_total", "States that were mended after the clock was set back.", "store"),
		tables:      &tableCollector{tables: make(map[*memory.Table]*tableUse)},
		rulesErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "rules_errors_total", Help: "Readings of the source of rules that failed, and documents that were refused.",
		}),
	}
})

// newMetrics returns the metrics, shown in a configuration's registry.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := theMetrics()
	for _, c := range []prometheus.Collector{m.decisions, m.denied, m.seconds, m.badCost, m.storeUp, m.storeErrors, m.fallback, m.clockSteps, m.tables, m.rulesErrors, rulesCollector{}, leasesCollector{}} {
		var already prometheus.AlreadyRegisteredError
		if err := reg.Register(c); err != nil && !errors.As(err, &already) {
			return nil, err
		}
	}
	return m, nil
}

// zoneMetrics are the counters of one zone, looked up once. Their zero value
// counts nothing.
type zoneMetrics struct {
	decisions *tally
	seconds   prometheus.Observer
	badCost   prometheus.Counter
	fallback  prometheus.Counter
	denied    *prometheus.CounterVec
	recent    *atomic.Pointer[deniedRule]
}

// deniedRule is the counter of the rule that denied last, which is mostly the
// one that denies next.
type deniedRule struct {
	rule  string
	count prometheus.Counter
}

func (m *metrics) zone(name, store string) zoneMetrics {
	return zoneMetrics{
		decisions: m.decisions.zone(name),
		seconds:   m.seconds.WithLabelValues(store),
		badCost:   m.badCost.WithLabelValues(name),
		fallback:  m.fallback.WithLabelValues(name),
		denied:    m.denied.MustCurryWith(prometheus.Labels{"zone": name}),
		recent:    new(atomic.Pointer[deniedRule]),
	}
}

// tableCollector reads the tables of the zones that run when it is asked.
type tableCollector struct {
	mu     sync.Mutex
	tables map[*memory.Table]*tableUse
}

// tableUse says which zone a table is of, and how many handlers use it.
type tableUse struct {
	zone  string
	users int
}

func (c *tableCollector) add(zone string, t *memory.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tables[t] == nil {
		c.tables[t] = &tableUse{zone: zone}
	}
	c.tables[t].users++
}

func (c *tableCollector) remove(t *memory.Table) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.tables[t]; u != nil {
		if u.users--; u.users == 0 {
			delete(c.tables, t)
		}
	}
}

var (
	keysDesc     = prometheus.NewDesc(metricsNamespace+"_keys", "Keys kept in this process, by zone.", []string{"zone"}, nil)
	overflowDesc = prometheus.NewDesc(metricsNamespace+"_overflow_total", "Charges to counters that several keys share, because the zone is full.", []string{"zone"}, nil)
)

// Describe implements prometheus.Collector.
func (c *tableCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- keysDesc
	ch <- overflowDesc
}

// Collect implements prometheus.Collector.
func (c *tableCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys, overflows := make(map[string]float64), make(map[string]float64)
	for t, u := range c.tables {
		keys[u.zone] += float64(t.Keys())
		overflows[u.zone] += float64(t.Overflows())
	}
	for zone := range keys {
		ch <- prometheus.MustNewConstMetric(keysDesc, prometheus.GaugeValue, keys[zone], zone)
		ch <- prometheus.MustNewConstMetric(overflowDesc, prometheus.CounterValue, overflows[zone], zone)
	}
}

// count counts a decision in one of the lanes.
func (z *zoneMetrics) count(o outcome, lane uint32) {
	if z.decisions != nil {
		z.decisions[lane%tallyLanes].decided[o].Add(1)
	}
}

func (z *zoneMetrics) countDenied(rule string) {
	if z.denied == nil {
		return
	}
	d := z.recent.Load()
	if d == nil || d.rule != rule {
		d = &deniedRule{rule, z.denied.WithLabelValues(rule)}
		z.recent.Store(d)
	}
	d.count.Inc()
}

func (z *zoneMetrics) countBadCost() {
	if z.badCost != nil {
		z.badCost.Inc()
	}
}

// observe notes how long a decision took, and whether it was made without the
// zone's store.
func (z *zoneMetrics) observe(took time.Duration, m stores.Mode) {
	if z.seconds == nil {
		return
	}
	z.seconds.Observe(took.Seconds())
	switch m {
	case stores.ModeFallback, stores.ModeAllow, stores.ModeDeny:
		z.fallback.Inc()
	}
}

// setStoreUp says whether a store is asked. What may go wrong with it is told of
// from the start, as 0: a counter that begins with 1 has no rate.
func (m *metrics) setStoreUp(store string, up bool) {
	v := 0.0
	if up {
		v = 1
	}
	m.storeUp.WithLabelValues(store).Set(v)
	for _, f := range redis.Failures {
		m.storeErrors.WithLabelValues(store, string(f))
	}
	m.clockSteps.WithLabelValues(store)
}
