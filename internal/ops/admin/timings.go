package admin

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dianalimiter/diana/internal/ops/cli"
)

// timings returns the durations of decisions, ordered by store.
func timings(of *prometheus.HistogramVec) []cli.Timing {
	all := []cli.Timing{}
	r := prometheus.NewRegistry()
	r.MustRegister(of)
	families, _ := r.Gather() // a histogram has no errors
	for _, f := range families {
		for _, sample := range f.GetMetric() {
			if h := sample.GetHistogram(); h.GetSampleCount() > 0 {
				all = append(all, cli.Timing{
					Store: sample.GetLabel()[0].GetValue(), Count: h.GetSampleCount(), Sum: h.GetSampleSum(), P50: quantile(h, 0.5), P99: quantile(h, 0.99),
				})
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
