package diana

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// rulesCollector tells of the rules in force in the configuration that runs.
type rulesCollector struct{}

var (
	rulesInfoDesc = prometheus.NewDesc(metricsNamespace+"_rules_info", "Where the rules of a zone come from: config, or the kind of source (redis, http, file).", []string{"zone", "source"}, nil)
	rulesAgeDesc  = prometheus.NewDesc(metricsNamespace+"_rules_age_seconds", "Seconds since the source of rules was last seen to hold the rules in force.", nil, nil)
)

const fromConfig = "config"

// Describe implements prometheus.Collector.
func (rulesCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- rulesInfoDesc
	ch <- rulesAgeDesc
}

// Collect implements prometheus.Collector.
func (rulesCollector) Collect(ch chan<- prometheus.Metric) {
	a := running.current()
	if a == nil {
		return
	}
	seen := make(map[string]bool)
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			if seen[z.Name] || h.DisableMetrics {
				continue
			}
			seen[z.Name] = true
			ch <- prometheus.MustNewConstMetric(rulesInfoDesc, prometheus.GaugeValue, 1, z.Name, a.origin(z.terms.Load()))
		}
	}
	if st, ok := a.feedStatus(); ok && !st.confirmed.IsZero() {
		ch <- prometheus.MustNewConstMetric(rulesAgeDesc, prometheus.GaugeValue, max(0, time.Since(st.confirmed).Seconds()))
	}
}

// origin says where rules come from.
func (a *App) origin(t *terms) string {
	if t.text == "" || a.remote.feed == nil {
		return fromConfig
	}
	return a.remote.feed.name()
}

// feedStatus is how things stand with the source of rules; false if there is none.
func (a *App) feedStatus() (feedStatus, bool) {
	f := a.remote.feed
	if f == nil {
		return feedStatus{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status, true
}
