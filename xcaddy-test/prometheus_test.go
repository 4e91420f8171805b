package xcaddytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// prometheus is a running Prometheus.
type prometheus struct{ url string }

// startPrometheus starts Prometheus with the configuration of the example and these
// targets. It runs until the end of the test.
func startPrometheus(t *testing.T, targets []string) *prometheus {
	t.Helper()
	text, err := os.ReadFile(observability + "prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := filepath.Abs(observability + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("/etc/prometheus/alerts.yml", alerts, "5s", "1s",
		"caddy1:2020, caddy2:2020, caddy3:2020", strings.Join(targets, ", ")).Replace(string(text))
	dir, port := t.TempDir(), harness.FreePort(t)
	path := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := harness.Program(t, "prometheus", "--config.file="+path, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		fmt.Sprint("--web.listen-address=127.0.0.1:", port))
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the end of Prometheus' log:\n%s", log.String()[max(0, log.Len()-4000):])
		}
	})
	return &prometheus{fmt.Sprint("http://127.0.0.1:", port)}
}

// get calls Prometheus' API and decodes the response into out. It reports whether
// there was a response.
func (p *prometheus) get(t *testing.T, path string, out any) bool {
	t.Helper()
	resp, err := http.Get(p.url + "/api/v1/" + path)
	if err != nil {
		return false // it is starting
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: out}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return false
	}
	if answer.Error != "" {
		t.Fatalf("%s: %s", path, answer.Error)
	}
	return answer.Status == "success"
}

// query returns the labels of each series that a query returns.
func (p *prometheus) query(t *testing.T, query string) (labels []map[string]string) {
	t.Helper()
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	p.get(t, "query?query="+url.QueryEscape(query), &data)
	for _, r := range data.Result {
		labels = append(labels, r.Metric)
	}
	return labels
}

// panelQuery is a query of the dashboard.
type panelQuery struct{ Expr, LegendFormat string }

// panelQueries returns the queries of the dashboard, for all instances and zones.
func panelQueries(t *testing.T) (list []panelQuery) {
	t.Helper()
	var board struct {
		Panels []struct{ Targets []panelQuery }
	}
	text, err := os.ReadFile(observability + "grafana/dashboards/rate-limits.json")
	if err == nil {
		err = json.Unmarshal(text, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			q.Expr = strings.NewReplacer("$instance", ".*", "$zone", ".*", "$__rate_interval", "1m").Replace(q.Expr)
			if strings.Contains(q.Expr, "$") {
				t.Errorf("%s: unknown variable", q.Expr)
			}
			list = append(list, q)
		}
	}
	if len(list) < 10 {
		t.Fatalf("the dashboard has %d queries", len(list))
	}
	return list
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// TestDashboardAndAlertsInPrometheus runs the three instances of the example, their
// Redis and Prometheus: every query of the dashboard returns series that have the
// labels of its legend, and an alert fires when Redis is down.
func TestDashboardAndAlertsInPrometheus(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	var all []*harness.Caddy
	var targets []string
	for range 3 {
		c, metrics := startObserved(t, redis)
		all, targets = append(all, c), append(targets, metrics)
	}
	push(t, redis, `{"zones": {"site": {"rules": [{"limit": 5, "window": "1h"}]}}}`)
	everywhere(t, all, "site", 5, harness.Patience)
	p := startPrometheus(t, targets)
	harness.Until(t, harness.Patience, "all instances to be scraped", func() bool { return len(p.query(t, "up == 1")) == 3 })
	for _, c := range all {
		c.Statuses(t, "/", 20)
		c.Statuses(t, "/login", 7)
	}
	// Also the first block of a rule is an increase.
	harness.Until(t, harness.Patience, "the block of a key to be shown", func() bool {
		return len(p.query(t, `sum by (zone, rule) (increase(caddy_rate_limit_blocks_total{zone="login",rule="1"}[1m])) > 0`)) == 1
	})
	var groups struct {
		Groups []struct {
			Rules []struct{ Name, Health, State string }
		}
	}
	healthy := func() (ok int) {
		p.get(t, "rules", &groups)
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				if r.Health == "ok" {
					ok++
				}
			}
		}
		return ok
	}
	harness.Until(t, harness.Patience, "all alerts to be looked at", func() bool { return healthy() == 10 })
	for _, q := range panelQueries(t) {
		var found []map[string]string
		harness.Until(t, harness.Patience, q.Expr+" to find something", func() bool {
			found = p.query(t, q.Expr)
			return len(found) > 0
		})
		for _, label := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
			if found[0][label[1]] == "" {
				t.Errorf("%s has no %s, which its legend names: %v", q.Expr, label[1], found[0])
			}
		}
	}
	redis.Kill(t)
	harness.Until(t, harness.Patience, "failed calls to be shown", func() bool {
		all[0].Statuses(t, "/", 1)
		return len(p.query(t, `sum by (store, kind) (rate(caddy_rate_limit_store_errors_total[1m])) > 0`)) > 0
	})
	harness.Until(t, harness.Patience, "the alert to be pending", func() bool {
		healthy()
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				if r.Name == "RateLimitStoreAway" && (r.State == "pending" || r.State == "firing") {
					return true
				}
			}
		}
		return false
	})
	redis.Start(t)
}

// TestObservabilityCompose checks that the compose file of the example parses and
// that everything it names exists.
func TestObservabilityCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{observability + "compose.yml"}, cli.WithResolvedPaths(true), cli.WithName("observability"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(observability + "prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	published := make(map[string]string)
	for name, s := range project.Services {
		if b := s.Build; b != nil {
			if _, err := os.Stat(filepath.Join(b.Context, b.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if _, version, ok := strings.Cut(s.Image, ":"); !ok || version == "latest" {
			t.Errorf("%s: image %s: want a version", name, s.Image)
		}
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !v.ReadOnly {
				t.Errorf("%s may write to %s", name, v.Source)
			}
		}
		for _, port := range s.Ports {
			if other := published[port.Published]; other != "" {
				t.Errorf("port %s is published by %s and %s", port.Published, other, name)
			}
			published[port.Published] = name
		}
		if at := s.Environment["REDIS"]; at != nil {
			if host, _, _ := strings.Cut(*at, ":"); project.Services[host].Image == "" {
				t.Errorf("%s: REDIS %s is not a service", name, *at)
			}
			if !strings.Contains(string(config), name+":2020") {
				t.Errorf("Prometheus does not scrape %s", name)
			}
		}
	}
	if len(project.Services) != 6 || len(published) != 5 {
		t.Errorf("%d services, ports %v", len(project.Services), published)
	}
	dockerfile, err := os.ReadFile(observability + "Dockerfile")
	if err != nil || strings.Count(string(dockerfile), strings.TrimPrefix(harness.CaddyVersion, "v")) != 3 {
		t.Errorf("the Dockerfile builds another Caddy than %s: %v", harness.CaddyVersion, err)
	}
}
