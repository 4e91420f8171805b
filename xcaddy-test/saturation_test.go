package xcaddytest

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const (
	satClients = 200
	satLimit   = 200
	satWindow  = time.Second
	satQueue   = 20 // places of the leaky bucket, a tenth of a second's worth
)

// saturations says what each algorithm promises for satLimit in satWindow.
var saturations = []struct {
	rule  string
	bound int     // the most in any window
	burst int     // what may pass beyond the rate, once, at the start
	share float64 // the least of what the limit allows that must pass
}{
	{"fixed_window", 2*satLimit - 1, 0, 0.90},
	{"sliding_log", satLimit, 0, 0.90},
	{"sliding_window buckets 10", satLimit, 0, 0.88},
	{"token_bucket", 2 * satLimit, satLimit, 0.90},
	{fmt.Sprintf("leaky_bucket burst %d", satQueue), satLimit + 1, 0, 0.90},
	{"gcra", 2 * satLimit, satLimit, 0.90},
}

// satDuration is how long each algorithm is saturated: DIANA_SATURATE if that
// is set, such as 10s.
func satDuration(t *testing.T) time.Duration {
	text := os.Getenv("DIANA_SATURATE")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 2*satWindow {
		t.Fatalf("DIANA_SATURATE %q: want a duration of at least %v", text, 2*satWindow)
	}
	return d
}

// Three instances share one limit, many clients want far more than it allows:
// never more than the bound passes, in any window, and nearly all that the
// limit allows does.
func TestThreeInstancesKeepTheBoundUnderSaturation(t *testing.T) {
	redis := harness.StartRedis(t)
	var site strings.Builder
	for i, s := range saturations {
		fmt.Fprintf(&site, "\trate_limit /%[1]d {\n\t\tzone z%[1]d {\n\t\t\tkey one\n\t\t\trule %[2]d/%[3]v %[4]s\n\t\t}\n\t}\n",
			i, satLimit, satWindow, s.rule)
	}
	site.WriteString("\trespond ok")
	// On a busy machine a decision may take longer than the default timeout;
	// going alone then would be right, but is not what this test is about.
	config := harness.Config{Global: onRedis(redis, "timeout 2s"), Site: site.String()}
	instances := startMany(t, 3, config)
	during := satDuration(t)

	for i, s := range saturations {
		t.Run(strings.Fields(s.rule)[0], func(t *testing.T) {
			shots := harness.Saturate(satClients, harness.During(during), urls(instances, fmt.Sprintf("/%d", i))...)
			harness.OnlyStatuses(t, shots, http.StatusOK, http.StatusTooManyRequests)
			passed := harness.With(http.StatusOK, shots)
			windows := float64(during) / float64(satWindow)
			allowed := windows*satLimit + float64(s.burst)
			most := harness.MostWithin(passed, satWindow)
			t.Logf("%d of %d requests passed, %.1f%% of what the limit allows; at most %d in %v, bound %d",
				len(passed), len(shots), 100*float64(len(passed))/allowed, most, satWindow, s.bound)
			if most > s.bound {
				t.Errorf("%d passed within %v, bound %d", most, satWindow, s.bound)
			}
			if least := s.share * allowed; float64(len(passed)) < least {
				t.Errorf("%d passed, want at least %.0f", len(passed), least)
			}
			if len(shots) < 2*len(passed) {
				t.Errorf("%d requests for %d that passed: that is no saturation", len(shots), len(passed))
			}
		})
	}
	neverAlone(t, instances)
}

// neverAlone fails the test if an instance decided without Redis: what it then
// showed would not be about the shared limit.
func neverAlone(t *testing.T, instances []*harness.Caddy) {
	t.Helper()
	for _, c := range instances {
		if up, ok := c.Metric(t, "caddy_rate_limit_store_up"); !ok || up != 1 {
			t.Errorf("caddy_rate_limit_store_up is %v (there: %v), want 1", up, ok)
		}
		if strings.Contains(c.Log(), `"logger":"http.handlers.rate_limit","msg":"store`) {
			t.Errorf("the store was lost meanwhile:\n%s", c.Log())
		}
	}
}
