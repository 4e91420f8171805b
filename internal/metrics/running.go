package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Leases are the leases of one store since the process began.
type Leases struct {
	Store          string // its name
	Times          uint64 // how often part of a key's limit was charged in advance
	Granted, Spent uint64 // cost that was charged so, and that requests took of it
}

// LeasesCollector shows the leases of the stores that a function returns: those of
// the configuration that runs.
type LeasesCollector func() []Leases

var (
	leasesDesc  = prometheus.NewDesc(Namespace+"_leases_total", "How often part of a key's limit was charged in advance for this instance.", []string{"store"}, nil)
	grantedDesc = prometheus.NewDesc(Namespace+"_leased_cost_total", "Cost that was charged in advance for this instance.", []string{"store"}, nil)
	spentDesc   = prometheus.NewDesc(Namespace+"_leased_cost_spent_total", "Cost that requests took of what was charged in advance; the rest is lost.", []string{"store"}, nil)
)

// Describe implements prometheus.Collector.
func (LeasesCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- leasesDesc
	ch <- grantedDesc
	ch <- spentDesc
}

// Collect implements prometheus.Collector.
func (get LeasesCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range get() {
		for desc, n := range map[*prometheus.Desc]uint64{leasesDesc: l.Times, grantedDesc: l.Granted, spentDesc: l.Spent} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), l.Store)
		}
	}
}

// Rules are the rules in force.
type Rules struct {
	Origins   map[string]string // by zone: config, or the kind of source
	Confirmed time.Time         // when the source was last seen to hold them; zero: never
}

// RulesCollector shows the rules that a function returns: those of the configuration
// that runs.
type RulesCollector func() Rules

var (
	rulesInfoDesc = prometheus.NewDesc(Namespace+"_rules_info", "Where the rules of a zone come from: config, or the kind of source (redis, http, file).", []string{"zone", "source"}, nil)
	rulesAgeDesc  = prometheus.NewDesc(Namespace+"_rules_age_seconds", "Seconds since the source of rules was last seen to hold the rules in force.", nil, nil)
)

// Describe implements prometheus.Collector.
func (RulesCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- rulesInfoDesc
	ch <- rulesAgeDesc
}

// Collect implements prometheus.Collector.
func (get RulesCollector) Collect(ch chan<- prometheus.Metric) {
	r := get()
	for zone, origin := range r.Origins {
		ch <- prometheus.MustNewConstMetric(rulesInfoDesc, prometheus.GaugeValue, 1, zone, origin)
	}
	if !r.Confirmed.IsZero() {
		ch <- prometheus.MustNewConstMetric(rulesAgeDesc, prometheus.GaugeValue, max(0, time.Since(r.Confirmed).Seconds()))
	}
}
