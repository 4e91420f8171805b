package xcaddytest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestParallelLoginsKeepFailureLimit sends a thousand concurrent guesses to a slow
// login: exactly five are answered with 401, whichever instances they reach.
func TestParallelLoginsKeepFailureLimit(t *testing.T) {
	var guesses atomic.Int64
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		guesses.Add(1)
		// Long enough for all others to arrive before the first responses.
		time.Sleep(300 * time.Millisecond)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer login.Close()
	redis := harness.StartRedis(t)
	zone := "\trate_limit /%[1]s {\n\t\tzone %[1]s {\n\t\t\tkey one\n\t\t\trule 5/1m %[2]s\n" +
		"\t\t\tcount_status 401\n\t\t\tstore %[3]s\n\t\t}\n\t}\n"
	var site strings.Builder
	fmt.Fprintf(&site, zone, "shared", "", "redis")
	fmt.Fprintf(&site, zone, "local", "", "local")
	for _, algorithm := range algorithms {
		if algorithm != "leaky_bucket" { // it delays, which count_status rejects
			fmt.Fprintf(&site, zone, algorithm, algorithm, "redis")
		}
	}
	fmt.Fprintf(&site, "\treverse_proxy %s", strings.TrimPrefix(login.URL, "http://"))
	config := harness.Config{Global: onRedis(redis, "timeout 10s"), Site: site.String()}
	instances := startMany(t, 3, config)

	try := func(t *testing.T, n int, urls ...string) {
		guesses.Store(0)
		shots := harness.AtOnce(n, urls...)
		harness.OnlyStatuses(t, shots, http.StatusUnauthorized, http.StatusTooManyRequests)
		if failed := len(harness.With(http.StatusUnauthorized, shots)); failed != 5 || guesses.Load() != 5 {
			t.Errorf("%d responses are 401, %d guesses reached the login, want 5 of both", failed, guesses.Load())
		}
	}
	t.Run("shared", func(t *testing.T) { try(t, 1000, urls(instances, "/shared")...) })
	t.Run("local", func(t *testing.T) { try(t, 1000, instances[0].URL+"/local") })
	for _, algorithm := range algorithms {
		if algorithm != "leaky_bucket" {
			t.Run(algorithm, func(t *testing.T) { try(t, 100, urls(instances, "/"+algorithm)...) })
		}
	}
	wantNoFallback(t, instances)
}
