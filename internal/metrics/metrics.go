// Package metrics counts decisions for Prometheus, the admin API and the live page.
// Counters outlive the configuration, so that they survive reloads, and are exposed by the
// one that runs, as its zones and stores are at the scrape. Only the groups of group_by may have
// values that clients choose, and these are bounded.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dianalimiter/diana/internal/lib/process"
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

	// Seconds are the durations of decisions, by store.
	Seconds *prometheus.HistogramVec
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
		Seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: Namespace, Name: "decision_seconds", Help: "Duration of decisions, by the store that made them: local for this process, also while the store of a zone is unavailable. Of those made in this process, one in 16 is timed.",
			Buckets: []float64{1e-6, 5e-6, 25e-6, 1e-4, 25e-5, 5e-4, 1e-3, 25e-4, 5e-3, 1e-2, 25e-3, 5e-2, 0.1, 0.5},
		}, []string{"store"}),
	}
}}

// LocalStore is the label of decisions made in this process.
const LocalStore = "local"

// Zone returns the metrics of a zone in a store, with the counters of the zone.
func (m *Metrics) Zone(c *Counters, store string) Zone {
	return Zone{Counters: c, seconds: m.Seconds.WithLabelValues(store), local: m.Seconds.WithLabelValues(LocalStore)}
}
