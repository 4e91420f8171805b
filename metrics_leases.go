package diana

import "github.com/prometheus/client_golang/prometheus"

// leasesCollector tells of the leases of the stores in the configuration that
// runs.
type leasesCollector struct{}

var (
	leasesDesc  = prometheus.NewDesc(metricsNamespace+"_leases_total", "How often part of a key's limit was charged in advance for this instance.", []string{"store"}, nil)
	grantedDesc = prometheus.NewDesc(metricsNamespace+"_leased_cost_total", "Cost that was charged in advance for this instance.", []string{"store"}, nil)
	spentDesc   = prometheus.NewDesc(metricsNamespace+"_leased_cost_spent_total", "Cost that requests took of what was charged in advance; the rest is lost.", []string{"store"}, nil)
)

// Describe implements prometheus.Collector.
func (leasesCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- leasesDesc
	ch <- grantedDesc
	ch <- spentDesc
}

// Collect implements prometheus.Collector.
func (leasesCollector) Collect(ch chan<- prometheus.Metric) {
	a := running.current()
	if a == nil {
		return
	}
	for _, s := range a.shared {
		sum, has := s.LeaseStats()
		if !has {
			continue
		}
		for desc, n := range map[*prometheus.Desc]uint64{leasesDesc: sum.Times, grantedDesc: sum.Granted, spentDesc: sum.Spent} {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), s.Name())
		}
	}
}
