package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dianalimiter/diana/internal/stores/redis"
)

// Leases are the totals of the leases of one store.
type Leases struct {
	Store string // name of the store
	redis.LeaseStats
}

// LeasesCollector collects the leases of the stores of the running configuration, which
// the function returns.
type LeasesCollector func() []Leases

var (
	leasesDesc  = prometheus.NewDesc(Namespace+"_leases_total", "Leases of this instance: times that part of a key's limit was charged in advance.", []string{"store"}, nil)
	grantedDesc = prometheus.NewDesc(Namespace+"_leased_cost_total", "Cost charged in advance by the leases of this instance.", []string{"store"}, nil)
	spentDesc   = prometheus.NewDesc(Namespace+"_leased_cost_spent_total", "Part of the cost charged in advance that requests spent; the rest expires.", []string{"store"}, nil)
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

// Store is the use of one shared store.
type Store struct {
	Name      string  // of the store
	Instances int64   // live instances last seen
	Enforced  float64 // the part of each limit that this instance enforces: 1 while it is shared
	redis.CallStats
}

// StoresCollector collects the use of the stores of the running configuration, which the
// function returns.
type StoresCollector func() []Store

var (
	instancesDesc = prometheus.NewDesc(Namespace+"_instances", "Live instances that share the store, as last seen; 0: unknown.", []string{"store"}, nil)
	enforcedDesc  = prometheus.NewDesc(Namespace+"_enforced_share", "Part of each limit that this instance enforces: 1 while the store is used, also in the second after an outage in which this instance may still decide alone; its share while the store is unavailable and on_failure is local; 0 if nothing is counted meanwhile.", []string{"store"}, nil)
	callsDesc     = prometheus.NewDesc(Namespace+"_store_calls_total", "Calls of the script in the store.", []string{"store"}, nil)
	checksDesc    = prometheus.NewDesc(Namespace+"_store_checks_total", "Checks that were batched into these calls.", []string{"store"}, nil)
	callTimeDesc  = prometheus.NewDesc(Namespace+"_store_call_seconds_total", "Duration of these calls, seen from this instance.", []string{"store"}, nil)
)

// Describe implements prometheus.Collector.
func (StoresCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{instancesDesc, enforcedDesc, callsDesc, checksDesc, callTimeDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (get StoresCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range get() {
		ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(s.Instances), s.Name)
		ch <- prometheus.MustNewConstMetric(enforcedDesc, prometheus.GaugeValue, s.Enforced, s.Name)
		ch <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(s.Calls), s.Name)
		ch <- prometheus.MustNewConstMetric(checksDesc, prometheus.CounterValue, float64(s.Checks), s.Name)
		ch <- prometheus.MustNewConstMetric(callTimeDesc, prometheus.CounterValue, s.Took.Seconds(), s.Name)
	}
}

// Rules are the rules in force.
type Rules struct {
	Origins   map[string]string // by zone: config, or the kind of source
	Confirmed time.Time         // when they were last confirmed by the source; zero: never
}

// RulesCollector collects the rules of the running configuration, which the function
// returns.
type RulesCollector func() Rules

var (
	rulesInfoDesc = prometheus.NewDesc(Namespace+"_rules_info", "Origin of the rules of a zone: config, or the kind of source (redis, http, file).", []string{"zone", "source"}, nil)
	rulesAgeDesc  = prometheus.NewDesc(Namespace+"_rules_age_seconds", "Seconds since the rule source last confirmed the rules in force.", nil, nil)
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
