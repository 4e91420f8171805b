package xcaddytest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// Under make chaos nothing runs beside the tests, which take all of the machine.
var (
	satClients  = pick(200, 60)
	satPause    = pick(0, 25*time.Millisecond) // of a client, after each response
	satDuration = pick(3*time.Second, 2*satWindow)
)

const (
	satLimit  = 200
	satWindow = time.Second
	satQueue  = 20 // length of the leaky bucket's queue: a tenth of a second
)

// saturations lists the guarantees of each algorithm for satLimit in satWindow.
var saturations = []struct {
	rule  string
	bound int     // maximum in any window
	burst int     // excess over the rate, once, at the start
	share float64 // minimum share of the limit that must pass

	// A request is denied only if at least full passed in the time back before it.
	full int
	back time.Duration
}{
	{"fixed_window", 2*satLimit - 1, 0, 0.90, satLimit, satWindow},
	{"sliding_log", satLimit, 0, 0.90, satLimit, satWindow},
	{"sliding_window buckets 10", satLimit, 0, 0.88, satLimit, satWindow * 11 / 10},
	{"token_bucket", 2 * satLimit, satLimit, 0.90, satLimit - 1, satWindow},
	{fmt.Sprintf("leaky_bucket burst %d", satQueue), satLimit + 1, 0, 0.90, satQueue - 1, satWindow * satQueue / satLimit},
	{"gcra", 2 * satLimit, satLimit, 0.90, satLimit - 1, satWindow},
}

// TestThreeInstancesKeepTheBoundUnderSaturation checks that with three instances that
// share one saturated limit, never more than the bound passes in any window, and
// nearly the whole limit does.
func TestThreeInstancesKeepTheBoundUnderSaturation(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	var site strings.Builder
	for i, s := range saturations {
		fmt.Fprintf(&site, "\trate_limit /%[1]d {\n\t\tzone z%[1]d {\n\t\t\tkey one\n\t\t\trule %[2]d/%[3]v %[4]s\n\t\t}\n\t}\n",
			i, satLimit, satWindow, s.rule)
	}
	site.WriteString("\trespond ok")
	// On a loaded machine a decision may exceed the default timeout and fall back to
	// the local store, which this test does not cover.
	config := harness.Config{Global: onRedis(redis, "timeout 30s"), Site: site.String()}
	instances := startMany(t, 3, config)

	for i, s := range saturations {
		t.Run(strings.Fields(s.rule)[0], func(t *testing.T) {
			shots := saturate(t, urls(instances, fmt.Sprint("/", i)))
			most, share := keptBound(t, satLimit, s.bound, s.burst, shots)
			t.Logf("at most %d in %v, bound %d; %.1f%% of the limit", most, satWindow, s.bound, 100*share)
			deniedRightly(t, shots, s.full, s.back)
			// While a loaded machine stalls, part of the limit is unused. The bound
			// must hold nevertheless.
			if share < s.share {
				late(t, "%.1f%% of what the limit allows passed, want at least %.0f%%", 100*share, 100*s.share)
			}
		})
	}
	wantNoFallback(t, instances)
}

// saturate sends requests for satDuration, and on until one of them is denied.
func saturate(t *testing.T, urls []string) (shots []harness.Shot) {
	t.Helper()
	harness.Until(t, harness.Patience, "the limit to be saturated", func() bool {
		shots = append(shots, harness.Saturate(satClients, satPause, harness.During(satDuration), urls...)...)
		return len(harness.With(http.StatusTooManyRequests, shots)) > 0
	})
	return shots
}

// keptBound fails the test if more than the bound passed in any window. It returns
// the maximum and the share of the limit that passed.
func keptBound(t *testing.T, limit, bound, burst int, shots []harness.Shot) (most int, share float64) {
	t.Helper()
	harness.OnlyStatuses(t, shots, http.StatusOK, http.StatusTooManyRequests)
	passed := harness.With(http.StatusOK, shots)
	if most = harness.MostWithin(passed, satWindow); most > bound {
		t.Errorf("%d passed within %v, bound %d", most, satWindow, bound)
	}
	windows := float64(shots[len(shots)-1].Got.Sub(shots[0].Sent)) / float64(satWindow)
	return most, float64(len(passed)) / (windows*float64(limit) + float64(burst))
}

// deniedRightly fails the test if a request was denied although fewer than full had
// passed in the time before. A request in flight at either end of that time may have
// been charged in it.
func deniedRightly(t *testing.T, shots []harness.Shot, full int, back time.Duration) {
	t.Helper()
	passed := harness.With(http.StatusOK, shots)
	for _, d := range harness.With(http.StatusTooManyRequests, shots) {
		from, n := d.Sent.Add(-back-time.Millisecond), 0
		for _, p := range passed {
			if p.Got.After(from) && p.Sent.Before(d.Got) {
				n++
			}
		}
		if n < full {
			t.Errorf("denied though only %d had passed in the %v before, want at least %d", n, back, full)
			return
		}
	}
}

// wantNoFallback fails the test if an instance decided without Redis: its results
// would not be those of the shared limit.
func wantNoFallback(t *testing.T, instances []*harness.Caddy) {
	t.Helper()
	for _, c := range instances {
		if up, ok := c.Metric(t, "caddy_rate_limit_store_up"); !ok || up != 1 {
			t.Errorf("caddy_rate_limit_store_up is %v (found: %v), want 1", up, ok)
		}
		if strings.Contains(c.Log(), "on_failure applies") {
			t.Errorf("the store went down:\n%s", c.Log())
		}
	}
}
