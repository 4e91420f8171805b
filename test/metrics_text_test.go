package test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// changing matches the values that differ from run to run: durations, calls and what other
// tests of this process have counted.
var changing = regexp.MustCompile(`(?m)^((?:caddy_rate_limit_(?:decision_seconds|rules_age_seconds|rules_errors_total|store_call|store_checks|store_errors_total\{kind="away)).*) \S+$`)

// metricsText returns the lines of the metrics as Prometheus reads them, without values that
// differ from run to run.
func (s *site) metricsText() []string {
	s.Helper()
	ctx := caddy.ActiveContext()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(ctx.GetMetricsRegistry(), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var b strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, "uncharged_total{") && !strings.HasSuffix(line, " 0\n") {
			continue // of a zone that is gone
		}
		if strings.Contains(line, "caddy_rate_limit") && !strings.Contains(line, "decision_seconds") || strings.Contains(line, `decision_seconds_count{store="golden`) {
			b.WriteString(line)
		}
	}
	return strings.SplitAfter(changing.ReplaceAllString(b.String(), "$1 ~"), "\n")
}

// TestMetricsText compares the lines of /metrics, as they begin and end, with testdata/metrics.txt, through
// rules from outside, a store that is away and a reload. UPDATE_GOLDENS=1 rewrites the file.
func TestMetricsText(t *testing.T) {
	srv := redistest.Start(t)
	app := redisStore(srv.Addr, "name golden", "timeout 10s", "lease 1s") + redisStore(unusedAddr(t), "name golden-away")
	const leaving = `
				zone leaves {
					match path /leaves
					rule 1/1h name own
					store local
				}`
	site := func(more string) string {
		return `
			rate_limit {
				zone plain {
					match path /plain
					rule 2/1h name hourly
					store local
				}
				zone dark {
					match path /plain
					shadow
					rule 1/1h
					store local
				}
				zone blocks {
					match path /blocks
					rule 1/1h block 1h
					store local
				}
				zone limited {
					match path /limited
					rule {header.X-Limit}/1h else 5
					store local
				}
				zone costly {
					match path /costly
					cost {header.X-Cost}
					rule 10/1h
					in_flight 2
					override 10.0.0.9 {
						rule 1/1h name few
						rule 5/1h fixed_window
					}
					store local
				}
				zone lacks {
					match path /lacks
					key {header.X-None}
					key_missing deny
					rule 1/1h
					store local
				}
				zone settles {
					match path /settles
					rule 100/1h
					settle {http.response.header.X-Tokens}
					group_by {header.X-Team} {method}
				}
				zone counts {
					match path /settles
					rule 5/1h
					count_status 401
				}
				zone twice {
					match path /twice
					prevent_duplicates
					rule 100/1h
				}
				zone alone {
					match path /alone
					rule 2/1h
					store golden-away
				}` + more + `
			}
			rate_limit {
				zone hidden {
					rule 1000/1h
					store local
				}
				disable_metrics
			}
			header /settles X-Tokens 7
			respond ok`
	}
	s := serveRuled(t, setup{app: app, site: site(leaving)})
	until(t, "the store to be down", func() bool { return s.metric("store_up", "store", "golden-away") == 0 })
	var got strings.Builder
	var last []string
	note := func(when string) { // the lines that begin and end
		now := s.metricsText()
		fmt.Fprintf(&got, "== %s\n", when)
		for i, lines := range [][2][]string{{last, now}, {now, last}} {
			for _, line := range lines[0] {
				if !slices.Contains(lines[1], line) {
					got.WriteString([]string{"- ", "+ "}[i] + line)
				}
			}
		}
		last = now
	}
	note("before any request")
	with := func(name, value string) map[string]string { return map[string]string{name: value} }
	s.want(req{path: "/plain"}, 200, 200, 429)
	s.want(req{path: "/blocks"}, 200, 429, 429)
	s.want(req{path: "/limited", header: with("X-Limit", "1")}, 200, 429)
	s.want(req{path: "/limited", header: with("X-Limit", "bad"), ip: "10.0.0.2"}, 200)
	s.want(req{path: "/costly", header: with("X-Cost", "7")}, 200, 429)
	s.want(req{path: "/costly", header: with("X-Cost", "bad"), ip: "10.0.0.9"}, 200, 429)
	s.want(req{path: "/lacks"}, 429)
	s.want(req{path: "/settles"}, 200)
	s.want(req{path: "/settles", header: with("X-Team", "blue")}, 200)
	s.want(req{path: "/twice", method: "POST"}, 200, 429)
	s.want(req{path: "/leaves"}, 200, 429)
	s.want(req{path: "/alone"}, 200, 200, 429)
	note("after requests")
	s.apply(`{"zones": {"plain": {"rules": [{"name": "remote", "limit": 1, "window": "2h"}, {"limit": 1, "window": "1h", "block": "1m"}]}, "lacks": {"enabled": false}}}`)
	s.want(req{path: "/plain", ip: "10.0.0.3"}, 200, 429)
	s.want(req{path: "/lacks"}, 200)
	note("with rules from outside")
	s.apply(`{"zones": {}}`)
	s.want(req{path: "/plain", ip: "10.0.0.4"}, 200, 200, 429)
	note("without rules from outside")
	s.reload(setup{app: app + "\nrules file " + s.path, site: site("")})
	until(t, "the series of the zone that leaves to end", func() bool { return !strings.Contains(strings.Join(s.metricsText(), ""), `"leaves"`) })
	s.want(req{path: "/plain", ip: "10.0.0.5"}, 200, 200, 429)
	note("after a reload")

	file := filepath.Join("testdata", "metrics.txt")
	if os.Getenv("UPDATE_GOLDENS") != "" {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wants, gots := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	for i := range max(len(wants), len(gots)) {
		if i >= len(wants) || i >= len(gots) || wants[i] != gots[i] {
			t.Fatalf("line %d of %d, want %d lines:\n%s\nwant\n%s", i+1, len(gots), len(wants), strings.Join(gots[min(i, len(gots)):min(i+3, len(gots))], "\n"), strings.Join(wants[min(i, len(wants)):min(i+3, len(wants))], "\n"))
		}
	}
}
