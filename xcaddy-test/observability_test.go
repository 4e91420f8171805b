package xcaddytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const observability = "../examples/observability/"

// promtool runs promtool, which must succeed.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := harness.Program(t, "promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil || stdin != "" && len(out) > 0 {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlerts(t *testing.T) {
	promtool(t, "", "check", "rules", observability+"alerts.yml")
	promtool(t, "", "test", "rules", observability+"alerts_test.yml")
	promtool(t, "", "check", "config", "--syntax-only", observability+"prometheus.yml")
}

// runbook matches the link of an alert to its section in docs/operating.md.
var runbook = regexp.MustCompile(`runbook_url: https://github\.com/dianalimiter/diana/blob/main/docs/operating\.md#(\S+)`)

// alert matches an alert after "- alert: ".
var alert = regexp.MustCompile(`(?s)^(\w+)\s+expr: (?:\|\s+)?(.*?)\s+for: (\w+)\s+labels: \{severity: (\w+)\}`)

// alertRow returns the row of an alert in the table of docs/operating.md; empty: it is no
// alert.
func alertRow(part string) string {
	m := alert.FindStringSubmatch(part)
	if m == nil {
		return ""
	}
	expr := strings.ReplaceAll(strings.Join(strings.Fields(m[2]), " "), "|", `\|`)
	return fmt.Sprintf("| [%s](#%s) | `%s` | %s | %s |", m[1], strings.ToLower(m[1]), expr, m[3], m[4])
}

// TestAlertsHaveRunbooks checks that each alert links to a section of the documentation that
// says what to do about it, and stands in the table there.
func TestAlertsHaveRunbooks(t *testing.T) {
	alerts, err := os.ReadFile(observability + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^### (RateLimit\w+)$`).FindAllSubmatch(doc, -1) {
		anchors[strings.ToLower(string(m[1]))] = true
	}
	parts := strings.Split(string(alerts), "- alert: ")[1:]
	for _, part := range parts {
		name, _, _ := strings.Cut(part, "\n")
		link := runbook.FindStringSubmatch(part)
		if link == nil || link[1] != strings.ToLower(name) || !anchors[link[1]] {
			t.Errorf("%s: %q: want a link to its section of docs/operating.md", name, link)
		}
		if row := alertRow(part); row == "" || !strings.Contains(string(doc), "\n"+row+"\n") {
			t.Errorf("%s: the table of docs/operating.md has no row %q", name, row)
		}
	}
	if n := strings.Count(string(doc), "\n| [RateLimit"); n != len(parts) {
		t.Errorf("the table of docs/operating.md has %d alerts, want %d", n, len(parts))
	}
	if len(parts) != len(anchors) {
		t.Errorf("%d alerts, and %d sections", len(parts), len(anchors))
	}
}

// startObserved starts one instance of compose.yml and returns it with the address
// of its metrics.
func startObserved(t *testing.T, redis *harness.Redis) (c *harness.Caddy, metrics string) {
	t.Helper()
	port, admin, metricsPort := harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)
	cmd := harness.Command(t, t.TempDir(), "adapt", "--adapter", "caddyfile", "--config", observability+"limits.caddyfile")
	cmd.Env = append(cmd.Env, fmt.Sprint("PORT=", port), fmt.Sprint("METRICS=", metricsPort), "REDIS="+redis.Addr)
	config, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	config = []byte(strings.Replace(string(config), "{", fmt.Sprintf(`{"admin":{"listen":"127.0.0.1:%d"},`, admin), 1))
	// On a busy machine Redis would be asked in vain, and this test counts to the request.
	config = bytes.Replace(config, []byte(`"lease":`), []byte(`"timeout":1000000000,"lease":`), 1)
	return harness.StartCaddyJSON(t, config, port, admin), fmt.Sprint("127.0.0.1:", metricsPort)
}

var (
	metricName = regexp.MustCompile(`caddy_rate_limit_\w+`)
	help       = regexp.MustCompile(`(?m)^# TYPE (caddy_rate_limit_\w+) (\w+)$`)
)

// TestObservedMetricsExist checks that every metric named by the examples exists in
// a Caddy with their configuration and passes promtool's checks, also after a
// reload.
func TestObservedMetricsExist(t *testing.T) {
	redis := harness.StartRedis(t)
	c, metrics := startObserved(t, redis)
	push(t, redis, `{"zones": {"site": {"rules": [{"limit": 5, "window": "1h"}]}}}`)
	everywhere(t, []*harness.Caddy{c}, "site", 5, harness.Patience)
	push(t, redis, `{"zones": 1}`)
	c.Statuses(t, "/", 20)
	scrape := func() string {
		return harness.Do(t, http.MethodGet, "http://"+metrics+"/metrics", "").Body
	}
	harness.Until(t, 10*soon, "the rejected document to be counted", func() bool {
		return strings.Contains(scrape(), "caddy_rate_limit_rules_errors_total 1")
	})
	c.Load(t, c.Running(t))
	got := scrape()
	var ours strings.Builder
	kinds := make(map[string]string)
	for line := range strings.Lines(got) {
		if strings.Contains(line, "caddy_rate_limit_") {
			ours.WriteString(line)
		}
	}
	for _, m := range help.FindAllStringSubmatch(got, -1) {
		kinds[m[1]] = m[2]
	}
	promtool(t, ours.String(), "check", "metrics")
	if !strings.Contains(got, `caddy_rate_limit_denied_total{cause="rule",rule="1",zone="site"} 15`) {
		t.Errorf("no denied requests in the metrics after a reload:\n%s", ours.String())
	}
	for _, file := range []string{"alerts.yml", "grafana/dashboards/rate-limits.json"} {
		text, err := os.ReadFile(observability + file)
		if err != nil {
			t.Fatal(err)
		}
		names := metricName.FindAllString(string(text), -1)
		if len(names) < 8 {
			t.Errorf("%s names %q", file, names)
		}
		for _, name := range names {
			if kinds[strings.TrimSuffix(name, "_bucket")] == "" {
				t.Errorf("%s names %s, which is not a metric of Caddy", file, name)
			}
		}
	}
	board, err := os.ReadFile(observability + "grafana/dashboards/rate-limits.json")
	if err != nil || !json.Valid(board) {
		t.Errorf("the dashboard: %v", err)
	}
}
