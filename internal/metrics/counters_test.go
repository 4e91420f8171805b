package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestDecisionsNeverDecrease scrapes while requests are delayed, and after their clients have left: a counter that
// decreases is one of a process that has restarted, whose whole value Prometheus adds.
func TestDecisionsNeverDecrease(t *testing.T) {
	c := new(Counters)
	m := all.New()
	r := prometheus.NewRegistry()
	r.MustRegister(m.Collector(func() Running { return Running{Zones: map[string]*Exposed{"api": {Counters: c}}} }))
	scrape := func(outcome string) float64 {
		t.Helper()
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, s := range f.GetMetric() {
				if f.GetName() == Namespace+"_decisions_total" && s.GetLabel()[0].GetValue() == outcome {
					return s.GetCounter().GetValue()
				}
			}
		}
		t.Fatalf("no decisions %s", outcome)
		return 0
	}
	want := func(delayed, left float64) {
		t.Helper()
		if d, l := scrape("delayed"), scrape("left"); d != delayed || l != left {
			t.Errorf("delayed %v, left %v, want %v and %v", d, l, delayed, left)
		}
	}
	for range 5 {
		c.Count(Delayed, 0)
	}
	want(5, 0)
	for range 2 {
		c.Move(Delayed, Left, 1)
	}
	want(5, 2)
	c.Count(Delayed, 0)
	want(5, 2)
	c.Count(Delayed, 0)
	c.Count(Delayed, 0)
	want(6, 2)
}
