package test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/redistest"
)

// metric returns the sum of a metric's series with these labels.
func (s *site) metric(name string, labels ...string) float64 {
	s.Helper()
	return s.gather()(name, labels...)
}

// gather reads all metrics once and returns a function like [site.metric] on that
// snapshot.
func (s *site) gather() func(name string, labels ...string) float64 {
	s.Helper()
	ctx := caddy.ActiveContext()
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		s.Fatal(err)
	}
	return func(name string, labels ...string) (sum float64) {
		for _, f := range families {
			if f.GetName() != metrics.Namespace+"_"+name {
				continue
			}
			for _, m := range f.GetMetric() {
				has := make(map[string]string)
				for _, l := range m.GetLabel() {
					has[l.GetName()] = l.GetValue()
				}
				if hasLabels(has, labels) {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				}
			}
		}
		return sum
	}
}

func hasLabels(has map[string]string, want []string) bool {
	for i := 0; i < len(want); i += 2 {
		if has[want[i]] != want[i+1] {
			return false
		}
	}
	return true
}

// TestMetrics makes one decision of each kind and checks the metrics before and
// after a reload.
func TestMetrics(t *testing.T) {
	onBoth(t, func(t *testing.T, b backend) {
		store := "local"
		if b.redis != nil {
			store = "metered" // unique to this test
		}
		tag := "m" + store
		c := setup{site: strings.ReplaceAll(`
			rate_limit {
				zone TAG {
					exempt path /exempt
					rule 2/1h name hourly
				}
				zone TAG-dark {
					shadow
					rule 1/1h
				}
				zone TAG-else {
					match path /else
					key {header.X-None}
					key_missing deny
					rule 1/1h
				}
				zone TAG-slow {
					match path /slow
					rule 20/1s leaky_bucket
				}
			}
			rate_limit {
				zone TAG-hidden {
					rule 100/1h
				}
				disable_metrics
			}
			respond ok`, "TAG", tag)}
		if b.redis != nil {
			c.app = redisStore(b.redis.Addr, "name metered", "timeout 10s")
		}
		s := serve(t, c)
		s.want(req{path: "/exempt", ip: "10.0.0.1"}, 200)
		s.want(req{}, 200, 200, 429)
		s.want(req{path: "/else"}, 429)
		s.want(req{path: "/slow", ip: "10.0.0.2"}, 200, 200)
		want := map[string]float64{
			"decisions_total zone TAG decision skipped":           1,
			"decisions_total zone TAG decision allowed":           4, // includes a request to /slow that this zone did not delay
			"decisions_total zone TAG decision denied":            1,
			"decisions_total zone TAG decision refused_elsewhere": 1,
			"decisions_total zone TAG-dark decision allowed":      3,
			"decisions_total zone TAG-dark":                       7,
			"decisions_total zone TAG-else decision denied":       1,
			"decisions_total zone TAG-slow":                       2,
			"denied_total zone TAG rule hourly":                   1,
			"denied_total zone TAG-else rule key_missing":         1,
			"denied_total zone TAG-dark":                          0,
			"decisions_total zone TAG-hidden":                     0,
			"keys zone TAG-hidden":                                0,
			"overflow_total zone TAG":                             0,
			"fallback_total zone TAG":                             0,
			"store_up store STORE":                                1,
		}
		if b.redis == nil {
			want["keys zone TAG"] = 2
			want["store_up store STORE"] = 0 // the local store has no store_up
		}
		check := func(when string) {
			t.Helper()
			metric := s.gather()
			for labels, n := range want {
				f := strings.Fields(strings.NewReplacer("TAG", tag, "STORE", store).Replace(labels))
				if strings.HasSuffix(labels, "zone TAG decision allowed") {
					n = 4 - metric("decisions_total", "zone", tag, "decision", "delayed")
				}
				if got := metric(f[0], f[1:]...); got != n {
					t.Errorf("%s: %s is %v, want %v", when, labels, got, n)
				}
			}
		}
		check("at first")
		s.reload(c)
		check("after a reload")
		s.want(req{ip: "10.0.0.9"}, 200)
		if got := s.metric("decisions_total", "zone", tag, "decision", "denied"); got != 1 {
			t.Errorf("after a reload: %v denied, want 1", got)
		}
		if s.metric("decision_seconds", "store", store) == 0 {
			t.Error("decision_seconds has no decision")
		}
	})
}

// TestScrape reads the metrics as Prometheus does and checks that no label value
// comes from a request.
func TestScrape(t *testing.T) {
	s := serve(t, setup{app: redisStore(unusedAddr(t)), site: `
		rate_limit {
			zone scraped {
				match path /api/*
				key {client_ip} {path} {header.A}
				rule 5/1h name r
				cost {header.X-Cost}
			}
			log_key
		}
		handle /metrics {
			metrics
		}
		handle {
			respond ok
		}`})
	for i := range 30 {
		s.send(req{
			path: fmt.Sprintf("/api/evil%d", i%4), ip: fmt.Sprintf("10.66.0.%d", i), host: fmt.Sprintf("evil%d.example", i),
			method: "EVIL", header: map[string]string{"A": "evil", "X-Cost": "evil"},
		})
	}
	body := s.want(req{path: "/metrics"}, 200).body
	ours := regexp.MustCompile(`(?m)^caddy_rate_limit_.*$`).FindAllString(body, -1)
	for _, line := range ours {
		if strings.Contains(line, "evil") || strings.Contains(line, "EVIL") || strings.Contains(line, "10.66") {
			t.Errorf("%s", line)
		}
	}
	for _, name := range []string{
		`decisions_total{decision="allowed",zone="scraped"}`, `decision_seconds_count{store="redis"}`, `keys{zone="scraped"}`,
		`overflow_total{zone="scraped"}`, `bad_cost_total{zone="scraped"}`, `store_up{store="redis"}`,
		`store_errors_total{kind="away",store="redis"}`, `fallback_total{zone="scraped"}`,
	} {
		if !strings.Contains(body, "caddy_rate_limit_"+name+" ") {
			t.Errorf("no %s in %s", name, strings.Join(ours, "\n"))
		}
	}
}

// TestClockStepsAreCounted sets Redis' clock back by an hour: the step is counted,
// and no client is denied for longer than one window from then on.
func TestClockStepsAreCounted(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	clock.Set(time.Hour)
	s := serve(t, zoneOf(backend{srv}, "rule 1/30s gcra"))
	s.want(req{}, 200)
	before := s.metric("clock_steps_total", "store", "redis")
	clock.Set(0)
	s.between(s.want(req{}, 429), "Retry-After", 20, 30)
	if n := s.metric("clock_steps_total", "store", "redis") - before; n != 1 {
		t.Errorf("clock_steps_total rose by %v, want 1", n)
	}
	s.between(s.want(req{}, 429), "Retry-After", 20, 30)
	if n := s.metric("clock_steps_total", "store", "redis") - before; n != 1 {
		t.Errorf("clock_steps_total rose by %v, want 1: the state was repaired", n)
	}
}
