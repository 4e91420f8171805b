// Package metrics counts decisions for Prometheus, the admin API and the live page.
// Counters belong to the process and are exposed by the running configuration, so that
// they survive reloads. No label has a value that clients choose.
package metrics

import (
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dianalimiter/diana/internal/process"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// Namespace is the prefix of the names of all metrics.
const Namespace = "caddy_rate_limit"

// Metrics are the metrics of the process.
type Metrics struct {
	// Tables are the tables of the zones of the running configuration.
	Tables *Tables

	// StoreErrors counts failed calls to a store, by name and kind.
	StoreErrors *prometheus.CounterVec

	// ClockSteps counts states that were repaired after the clock of a store was
	// set back.
	ClockSteps *prometheus.CounterVec

	// RulesErrors counts failed readings of the rule source and rejected documents.
	RulesErrors prometheus.Counter

	// Requests counts requests, each once, however many zones it meets: those allowed at
	// once, delayed and denied. One that meets a second handler may move from one to
	// another.
	Requests Counters

	decisions *zoneCounters
	seconds   *prometheus.HistogramVec
	badCost   *prometheus.CounterVec
	badLimit  *prometheus.CounterVec
	unknown   *prometheus.CounterVec
	uncharged *prometheus.CounterVec
	settled   *prometheus.CounterVec
	storeUp   *prometheus.GaugeVec
	fallback  *prometheus.CounterVec

	zones sync.Mutex // held while a zone's series begin or end

	mu     sync.Mutex
	timed  map[string]prometheus.Histogram // by store
	shared map[string]bool                 // stores with series of their own, by name
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels)
}

// Of returns the metrics of a process.
func Of(p *process.Process) *Metrics { return all.Of(p) }

// HistoryOf returns the history of decisions of a process.
func HistoryOf(p *process.Process) *History { return histories.Of(p) }

// MarksOf returns the marks of a process.
func MarksOf(p *process.Process) *Marks { return marks.Of(p) }

var (
	histories process.Var[History]
	marks     process.Var[Marks]
)

var all = process.Var[Metrics]{New: func() *Metrics {
	return &Metrics{
		Tables:      &Tables{tables: make(map[Table]*tableUse)},
		StoreErrors: counter("store_errors_total", "Failed calls to the store, by kind.", "store", "kind"),
		ClockSteps:  counter("clock_steps_total", "States that were repaired after the clock was set back.", "store"),
		RulesErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: Namespace, Name: "rules_errors_total", Help: "Failed readings of the rule source, and rejected documents.",
		}),
		decisions: &zoneCounters{zones: make(map[string]*Counters)},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: Namespace, Name: "decision_seconds", Help: "Duration of decisions, by the store that made them: local for this process, also while the store of a zone is unavailable. Of those made in this process, one in 16 is timed.",
			Buckets: []float64{1e-6, 5e-6, 25e-6, 1e-4, 25e-5, 5e-4, 1e-3, 25e-4, 5e-3, 1e-2, 25e-3, 5e-2, 0.1, 0.5},
		}, []string{"store"}),
		badCost:   counter("bad_cost_total", "Costs that were not an integer of at least 1 and counted as 1.", "zone"),
		unknown:   counter("unknown_cost_total", "Responses that did not tell the cost that settle asks for, or ended before they had.", "zone"),
		settled:   counter("settled_cost_total", "Cost of the requests whose responses tell it, as settle or tokens count it.", "zone"),
		uncharged: counter("uncharged_total", "Cost of responses that was to be charged in Redis, is not known to have been, and is not sent again.", "zone"),
		badLimit:  counter("bad_limit_total", "Requests of rules with a limit from the request that brought none, or one that is rejected.", "zone"),
		storeUp: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: Namespace, Name: "store_up", Help: "Whether the store is used (1) or unavailable (0).",
		}, []string{"store"}),
		fallback: counter("fallback_total", "Decisions made without the zone's store, because it was unavailable.", "zone"),
		timed:    make(map[string]prometheus.Histogram),
	}
}}

// Register registers the metrics of the process, and more, in the registry of a
// configuration.
func (m *Metrics) Register(reg prometheus.Registerer, more ...prometheus.Collector) error {
	own := []prometheus.Collector{m.decisions, m.seconds, m.badCost, m.badLimit, m.unknown, m.settled, m.uncharged, m.storeUp, m.StoreErrors, m.fallback, m.ClockSteps, m.Tables, m.RulesErrors}
	for _, c := range slices.Concat(own, more) {
		var already prometheus.AlreadyRegisteredError
		if err := reg.Register(c); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// LocalStore is the label of decisions made in this process.
const LocalStore = "local"

// Zone returns the metrics of a zone in a store. A zone that is still in use, in this
// configuration or in the one before, goes on counting. Release must be called.
func (m *Metrics) Zone(name, store string) Zone {
	m.zones.Lock()
	defer m.zones.Unlock()
	return Zone{
		Counters: m.decisions.take(name),
		seconds:  m.histogram(store),
		local:    m.histogram(LocalStore),
		badCost:  m.badCost.WithLabelValues(name),
		fallback: m.fallback.WithLabelValues(name),
	}
}

// CountLimits makes a zone count bad limits. A zone whose limits are constant has no such
// series.
func (m *Metrics) CountLimits(z *Zone, name string) { z.badLimit = m.badLimit.WithLabelValues(name) }

// CountSettled makes a zone count what its responses cost, and those that do not tell it.
func (m *Metrics) CountSettled(z *Zone, name string) {
	z.settled, z.unknown = m.settled.WithLabelValues(name), m.unknown.WithLabelValues(name)
}

// CountUncharged counts what a zone was to be charged in its store, and perhaps was not.
func (m *Metrics) CountUncharged(zone string, cost int64) {
	m.zones.Lock()
	defer m.zones.Unlock()
	if m.decisions.get(zone) != nil {
		m.uncharged.WithLabelValues(zone).Add(float64(cost))
	}
}

// Release undoes one Zone. The series of a zone that is not in use any more end.
func (m *Metrics) Release(name string) {
	m.zones.Lock()
	defer m.zones.Unlock()
	if m.decisions.release(name) {
		m.badCost.DeleteLabelValues(name)
		m.badLimit.DeleteLabelValues(name)
		m.unknown.DeleteLabelValues(name)
		m.settled.DeleteLabelValues(name)
		m.uncharged.DeleteLabelValues(name)
		m.fallback.DeleteLabelValues(name)
	}
}

func (m *Metrics) histogram(store string) prometheus.Histogram {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.timed[store]
	if h == nil {
		h, _ = m.seconds.WithLabelValues(store).(prometheus.Histogram) // documented to be one
		m.timed[store] = h
	}
	return h
}

// SetStores sets the shared stores of the running configuration. The series of others end.
func (m *Metrics) SetStores(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.shared {
		if !slices.Contains(names, name) {
			labels := prometheus.Labels{"store": name}
			m.storeUp.Delete(labels)
			m.ClockSteps.Delete(labels)
			m.StoreErrors.DeletePartialMatch(labels)
		}
	}
	m.shared = make(map[string]bool)
	for _, name := range names {
		m.shared[name] = true
	}
}

// SetStoreUp sets whether a store is used. It also initializes the other counters of the
// store to 0, because a counter that appears with the value 1 has no rate.
func (m *Metrics) SetStoreUp(store string, up bool) {
	v := 0.0
	if up {
		v = 1
	}
	m.storeUp.WithLabelValues(store).Set(v)
	for _, f := range redis.Failures {
		m.StoreErrors.WithLabelValues(store, string(f))
	}
	m.ClockSteps.WithLabelValues(store)
}

// Decisions returns the numbers of decisions of a zone by outcome, of denials by rule, and of
// denials that a zone in shadow only reported, by rule; nil: none.
func (m *Metrics) Decisions(zone string) (decisions, denied, shadow map[string]uint64) {
	if c := m.decisions.get(zone); c != nil {
		return c.read()
	}
	return nil, nil, nil
}

// Timing is the durations of decisions in one store since the process started, in
// seconds, as the admin API answers them.
type Timing struct {
	Store string  `json:"store"` // name of the store
	Count uint64  `json:"count"` // number of timed decisions
	Sum   float64 `json:"sum"`   // total duration
	P50   float64 `json:"p50"`   // upper bound of the median
	P99   float64 `json:"p99"`   // upper bound of the 99th percentile
}

// Timings returns the durations of decisions, ordered by store.
func (m *Metrics) Timings() []Timing {
	all := []Timing{}
	m.mu.Lock()
	timed := maps.Clone(m.timed)
	m.mu.Unlock()
	for _, store := range slices.Sorted(maps.Keys(timed)) {
		var sample dto.Metric
		if err := timed[store].Write(&sample); err != nil {
			continue
		}
		h := sample.GetHistogram()
		if h.GetSampleCount() > 0 {
			all = append(all, Timing{store, h.GetSampleCount(), h.GetSampleSum(), quantile(h, 0.5), quantile(h, 0.99)})
		}
	}
	return all
}

// quantile returns the upper bound of the bucket that contains a quantile.
func quantile(h *dto.Histogram, q float64) float64 {
	rank := uint64(q * float64(h.GetSampleCount()))
	for _, b := range h.GetBucket() {
		if b.GetCumulativeCount() > rank {
			return b.GetUpperBound()
		}
	}
	return 1
}
