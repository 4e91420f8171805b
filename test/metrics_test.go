package test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
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
			"decisions_total zone TAG decision skipped":          1,
			"decisions_total zone TAG decision allowed":          4, // includes a request to /slow that this zone did not delay
			"decisions_total zone TAG decision denied":           1,
			"decisions_total zone TAG decision denied_elsewhere": 1,
			"decisions_total zone TAG-dark decision allowed":     3,
			"decisions_total zone TAG-dark":                      7,
			"decisions_total zone TAG-else decision denied":      1,
			"decisions_total zone TAG-slow":                      2,
			"denied_total zone TAG rule hourly":                  1,
			"denied_total zone TAG-else rule key_missing":        1,
			"denied_total zone TAG-dark":                         0,
			"decisions_total zone TAG-hidden":                    0,
			"keys zone TAG-hidden":                               0,
			"overflow_total zone TAG":                            0,
			"fallback_total zone TAG":                            0,
			"store_up store STORE":                               1,
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

// values returns the values of a label in the series of all metrics, sorted, except what was not charged, which
// is shown when its zone is gone.
func (s *site) values(label string) (all []string) {
	s.Helper()
	ctx := caddy.ActiveContext()
	families, err := ctx.GetMetricsRegistry().Gather()
	if err != nil {
		s.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == metrics.Namespace+"_uncharged_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && strings.HasPrefix(f.GetName(), metrics.Namespace) {
					all = append(all, l.GetValue())
				}
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestSeriesEnd removes a remote rule, and then zones and a store by a reload: their
// series end, and those of what remains keep their values.
func TestSeriesEnd(t *testing.T) {
	s := serveRuled(t, setup{
		app: redisStore(unusedAddr(t), "name passing") + redisStore(unusedAddr(t), "name staying"),
		site: `
			rate_limit {
				zone stays {
					match path /stays
					rule 1/1h name own
					store local
				}
				zone leaves {
					match path /leaves
					rule 1/1h name own
					store local
				}
				zone mixed {
					match path /mixed
					rule 1/1h name own
					cost {header.X-Cost}
					store local
				}
			}
			rate_limit /auto {client_ip} 1/1h {
				store local
			}
			respond ok`,
	})
	s.want(req{path: "/auto"}, 200, 429)
	s.want(req{path: "/leaves"}, 200, 429)
	s.want(req{path: "/mixed", header: map[string]string{"X-Cost": "bad"}}, 200, 429)
	const stays = `{"zones": {"stays": {"rules": [{"name": "remote", "limit": 1, "window": "2h"}, {"name": "own", "limit": 1, "window": "1h"}]}}}`
	s.apply(stays)
	s.want(req{path: "/stays"}, 200, 429, 429)
	if n := s.metric("denied_total", "zone", "stays", "rule", "remote"); n != 2 {
		t.Fatalf("%v denials by the remote rule, want 2", n)
	}
	s.apply(`{"zones": {}}`)
	s.want(req{path: "/stays"}, 200, 429)
	if rules := strings.Join(s.values("rule"), " "); strings.Contains(rules, "remote") {
		t.Errorf("series of the rules %s, and the remote rule is gone", rules)
	}
	check := func(when string) {
		t.Helper()
		metric := s.gather()
		for labels, want := range map[string]float64{
			"decisions_total zone stays decision denied":  3,
			"decisions_total zone stays decision allowed": 2,
			"denied_total zone stays rule own":            1,
			"denied_total zone mixed rule own":            1,
			"bad_cost_total zone mixed":                   2,
		} {
			f := strings.Fields(labels)
			if got := metric(f[0], f[1:]...); got != want {
				t.Errorf("%s: %s is %v, want %v", when, labels, got, want)
			}
		}
	}
	check("before the reload")
	if n := len(slices.DeleteFunc(s.values("zone"), func(z string) bool { return !strings.HasPrefix(z, "auto-") })); n != 1 {
		t.Errorf("%d automatic zones, want 1", n)
	}
	s.reload(setup{
		app: redisStore(unusedAddr(t), "name staying") + "\nrules file " + s.path,
		site: `
			rate_limit {
				zone stays {
					match path /stays
					rule 1/1h name own
					store local
				}
				zone mixed {
					match path /mixed
					rule 1/1h name own
					cost {header.X-Cost}
					store local
				}
			}
			respond ok`,
	})
	check("after the reload")
	until(t, "the series of the old zones to end", func() bool { return strings.Join(s.values("zone"), " ") == "mixed stays" })
	if stores := s.values("store"); slices.Contains(stores, "passing") || !slices.Contains(stores, "staying") {
		t.Errorf("series of the stores %v, want those of staying and not of passing", stores)
	}
}

// TestDecisionSeconds delays Redis while a directive has zones in it and in this process:
// each duration is of the store that decided, also once Redis is away.
func TestDecisionSeconds(t *testing.T) {
	srv := redistest.Start(t)
	s := serve(t, setup{app: redisStore(srv.Addr, "name timed", "timeout 10s"), site: `
		rate_limit {
			zone here {
				rule 100000/1h
				store local
			}
			zone there {
				rule 100000/1h
			}
		}
		respond ok`})
	seconds := func(store string) (count uint64, sum float64) {
		var timed dto.Metric
		if err := metrics.Of(process.Program()).Seconds.WithLabelValues(store).(prometheus.Metric).Write(&timed); err != nil {
			t.Fatal(err)
		}
		return timed.GetHistogram().GetSampleCount(), timed.GetHistogram().GetSampleSum()
	}
	s.want(req{}, 200)
	here, hereSum := seconds("local")
	there, thereSum := seconds("timed")
	const pause = 500 * time.Millisecond
	sent, paused := uint64(0), time.Duration(0)
	until(t, "a local decision to be timed", func() bool {
		if err := srv.Client().Do(context.Background(), "client", "pause", pause.Milliseconds(), "all").Err(); err != nil {
			t.Fatal(err)
		}
		s.want(req{}, 200)
		paused += pause
		for range 30 {
			s.want(req{}, 200)
		}
		sent += 31
		n, _ := seconds("local")
		return n > here
	})
	count, sum := seconds("timed")
	if count-there != sent || sum-thereSum < 0.8*paused.Seconds() {
		t.Errorf("redis: %d decisions in %vs, want %d in at least %v", count-there, sum-thereSum, sent, paused)
	}
	if count, sum := seconds("local"); count-here > sent || sum-hereSum > paused.Seconds()/2 {
		t.Errorf("local: %d decisions in %vs, and Redis paused for %v", count-here, sum-hereSum, paused)
	}
	fallback := func(zone string) float64 { return s.metric("fallback_total", "zone", zone) }
	if n := fallback("here") + fallback("there"); n != 0 {
		t.Errorf("fallback_total is %v", n)
	}
	srv.Kill()
	until(t, "the store to be down", func() bool {
		s.want(req{}, 200)
		return s.metric("store_up", "store", "timed") == 0
	})
	there, _ = seconds("timed")
	here, _ = seconds("local")
	before := fallback("there")
	for range 200 {
		s.want(req{}, 200)
	}
	if n, _ := seconds("timed"); n != there {
		t.Errorf("%d decisions of a Redis that is away", n-there)
	}
	if n, _ := seconds("local"); n == here {
		t.Error("no decision of this process was timed")
	}
	if n := fallback("there") - before; n != 200 || fallback("here") != 0 {
		t.Errorf("fallback_total rose by %v, want 200, and is %v for a local zone", n, fallback("here"))
	}
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
