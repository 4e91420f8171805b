package xcaddytest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

const leaseShare = 0.90 // minimum share of the limit that must pass

// leaseLimit is the limit in satWindow. A busy machine has to send more.
var leaseLimit = pick(500, 100)

// TestLeasedKeyUnderSaturation checks that with three instances that lease one
// saturated key, never more than the bound passes, nearly the whole limit passes,
// and few requests call Redis.
func TestLeasedKeyUnderSaturation(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	rules := []struct {
		rule         string
		bound, burst int
	}{
		{"gcra", 2 * leaseLimit, leaseLimit},
		{"fixed_window", 2 * leaseLimit, 0},
		{"sliding_window buckets 10", leaseLimit, 0},
	}
	var site strings.Builder
	for i, r := range rules {
		fmt.Fprintf(&site, "\trate_limit /%[1]d {\n\t\tzone z%[1]d {\n\t\t\tkey one\n\t\t\trule %[2]d/%[3]v %[4]s\n\t\t}\n\t}\n",
			i, leaseLimit, satWindow, r.rule)
	}
	site.WriteString("\trespond ok")
	instances := startMany(t, 3, harness.Config{Global: onRedis(redis, "timeout 30s", "lease 50ms"), Site: site.String()})

	for i, r := range rules {
		t.Run(strings.Fields(r.rule)[0], func(t *testing.T) {
			before := redis.Calls(t)
			shots := saturate(t, urls(instances, fmt.Sprint("/", i)))
			calls := redis.Calls(t) - before
			most, share := keptBound(t, leaseLimit, r.bound, r.burst, shots)
			t.Logf("at most %d in %v, bound %d; %.1f%% of the limit; %d calls for %d requests",
				most, satWindow, r.bound, 100*share, calls, len(shots))
			if calls >= len(shots) {
				t.Errorf("%d calls for %d requests", calls, len(shots))
			}
			// The number of requests per lease depends on the machine, and a loaded one
			// stalls and leaves part of the limit unused.
			if share < leaseShare || calls*4 > len(shots) {
				late(t, "%.1f%% of what the limit allows passed, want at least %.0f%%; %d calls for %d requests, want a quarter at most",
					100*share, 100*leaseShare, calls, len(shots))
			}
		})
	}
	wantNoFallback(t, instances)
}
