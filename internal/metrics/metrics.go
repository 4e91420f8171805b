// Package metrics counts decisions for Prometheus, the admin API and the live page.
// Counters outlive the configuration, so that they survive reloads, and are exposed by the
// one that runs, as its zones and stores are at the scrape. Only the groups of group_by may have
// values that clients choose, and these are bounded.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dianalimiter/diana/internal/process"
)

// Namespace is the prefix of the names of all metrics.
const Namespace = "caddy_rate_limit"

// Metrics are the metrics of the process that belong to no zone.
type Metrics struct {
	// StoreErrors counts failed calls to a store, by name and kind.
	StoreErrors *prometheus.CounterVec

	// ClockSteps counts states that were repaired after the clock of a store was
	// set back.
	ClockSteps *prometheus.CounterVec

	// Uncharged counts what a zone was to be charged in its store, and perhaps was not, by reason.
	Uncharged *prometheus.CounterVec

	// RulesErrors counts failed readings of the rule source and rejected documents.
	RulesErrors prometheus.Counter

	// Requests counts requests, each once, however many zones it meets: those allowed at
	// once, delayed and denied. One that meets a second handler may move from one to
	// another.
	Requests Counters

	seconds *prometheus.HistogramVec
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels)
}

// Of returns the metrics of a process.
func Of(p *process.Process) *Metrics { return all.Of(p) }

var all = process.Var[Metrics]{New: func() *Metrics {
	return &Metrics{
		StoreErrors: counter("store_errors_total", "Failed calls to the store, by kind.", "store", "kind"),
		ClockSteps:  counter("clock_steps_total", "States that were repaired after the clock was set back.", "store"),
		Uncharged:   counter("uncharged_total", "Cost that was to be charged in a store, is not known to have been, and is not sent again, by reason.", "zone", "reason"),
		RulesErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: Namespace, Name: "rules_errors_total", Help: "Failed readings of the rule source, and rejected documents.",
		}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: Namespace, Name: "decision_seconds", Help: "Duration of decisions, by the store that made them: local for this process, also while the store of a zone is unavailable. Of those made in this process, one in 16 is timed.",
			Buckets: []float64{1e-6, 5e-6, 25e-6, 1e-4, 25e-5, 5e-4, 1e-3, 25e-4, 5e-3, 1e-2, 25e-3, 5e-2, 0.1, 0.5},
		}, []string{"store"}),
	}
}}

// LocalStore is the label of decisions made in this process.
const LocalStore = "local"

// Zone returns the metrics of a zone in a store, with the counters of the zone.
func (m *Metrics) Zone(c *Counters, store string) Zone {
	return Zone{Counters: c, seconds: m.seconds.WithLabelValues(store), local: m.seconds.WithLabelValues(LocalStore)}
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
	r := prometheus.NewRegistry()
	r.MustRegister(m.seconds)
	families, _ := r.Gather() // a histogram has no errors
	for _, f := range families {
		for _, sample := range f.GetMetric() {
			if h := sample.GetHistogram(); h.GetSampleCount() > 0 {
				all = append(all, Timing{sample.GetLabel()[0].GetValue(), h.GetSampleCount(), h.GetSampleSum(), quantile(h, 0.5), quantile(h, 0.99)})
			}
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
