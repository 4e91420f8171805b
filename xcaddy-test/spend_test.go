package xcaddytest

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// promqlBlock matches the queries of a page.
var promqlBlock = regexp.MustCompile("(?s)```promql\n(.*?)\n```")

// TestSpendInPrometheus scrapes the gateway of the example by a Prometheus and asks it the queries of the
// documentation: what was spent by team and model, and by team. What a group cost before the first scrape
// with it is not in an increase: this Prometheus may be older than what reads when the group began.
func TestSpendInPrometheus(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/language-models.md")
	queries := promqlBlock.FindAllStringSubmatch(string(page), -1)
	if err != nil || len(queries) != 2 {
		t.Fatalf("%d queries in the page (%v), want 2", len(queries), err)
	}
	port, admin := startWithUpstream(t, "llm-gateway")
	ask := func(key, model string, tokens int) {
		body := `{"model": "` + model + `", "max_tokens": ` + strconv.Itoa(tokens) + `, "messages": [{"role": "user", "content": "Hello"}]}`
		if a := harness.Do(t, http.MethodPost, "http://localhost:"+port+"/v1/chat/completions", body, "Authorization", "Bearer "+key, "Content-Type", "application/json"); a.Status != http.StatusOK {
			t.Fatalf("%+v", a)
		}
	}
	requests := func(tokens int) {
		for _, key := range []string{"a", "b"} {
			for _, model := range []string{"small", "large", "invented"} {
				ask(key, model, tokens)
			}
		}
	}
	requests(1)
	p := startPrometheus(t, []string{"localhost:" + admin})
	query := func(text string, label string) map[string]float64 {
		var answer struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
		if !p.get(t, "query?"+url.Values{"query": {text}}.Encode(), &answer) {
			return nil
		}
		values := make(map[string]float64)
		for _, r := range answer.Result {
			values[r.Metric[label]], _ = strconv.ParseFloat(r.Value[1].(string), 64)
		}
		return values
	}
	harness.Until(t, harness.Patience, "a scrape with the groups", func() bool {
		return len(query("caddy_rate_limit_group_cost_total", "group")) == 6
	})
	requests(100)
	// An input token and a hundred output tokens of each model, in dollars, rounded up to a millionth.
	dollars := map[string]float64{"small": 61e-6, "large": 1003e-6, "other": 4010e-6}
	// increase estimates the ends of the range by at most a half of the interval of scrapes.
	near := func(got, want float64) bool { return got >= want*0.999 && got <= want*1.2 }
	harness.Until(t, harness.Patience, "the spend by team and model", func() bool {
		byGroup, byTeam, all := query(queries[0][1], "group"), query(queries[1][1], "team"), 0.0
		for model, want := range dollars {
			all += want
			for _, team := range []string{"blue", "red"} {
				if !near(byGroup[team+" / "+model], want) {
					return false
				}
			}
		}
		return len(byGroup) == 6 && len(byTeam) == 2 && near(byTeam["blue"], all) && near(byTeam["red"], all)
	})
	t.Log(strings.Join(strings.Fields(queries[0][1]), " "), query(queries[0][1], "group"), time.Now().UTC().Format(time.DateTime))
}
