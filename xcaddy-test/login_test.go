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

// A thousand guesses at once, at a login that takes its time: five are
// answered 401, whichever instance they reach, and never one more.
func TestParallelLoginsKeepTheLimitOfFailures(t *testing.T) {
	var guesses atomic.Int64
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		guesses.Add(1)
		// Long enough that all the others arrive while the first are undecided.
		time.Sleep(300 * time.Millisecond)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer login.Close()
	redis := harness.StartRedis(t)
	zone := "\trate_limit /%[1]s {\n\t\tzone %[1]s {\n\t\t\tkey one\n\t\t\trule 5/1m %[2]s\n" +
		"\t\t\tcount_status 401\n\t\t\tstore %[3]s\n\t\t}\n\t}\n"
	var site strings.Builder
	fmt.Fprintf(&site, zone, "shared", "", "redis")
	fmt.Fprintf(&site, zone, "alone", "", "local")
	for _, algorithm := range algorithms {
		if algorithm != "leaky_bucket" { // which delays, and is refused here
			fmt.Fprintf(&site, zone, algorithm, algorithm, "redis")
		}
	}
	fmt.Fprintf(&site, "\treverse_proxy %s", strings.TrimPrefix(login.URL, "http://"))
	config := harness.Config{Global: onRedis(redis, "timeout 2s"), Site: site.String()}
	instances := startMany(t, 3, config)

	try := func(t *testing.T, n int, urls ...string) {
		guesses.Store(0)
		shots := harness.AtOnce(n, urls...)
		harness.OnlyStatuses(t, shots, http.StatusUnauthorized, http.StatusTooManyRequests)
		if failed := len(harness.With(http.StatusUnauthorized, shots)); failed != 5 || guesses.Load() != 5 {
			t.Errorf("%d answers 401, %d guesses reached the login, want 5 of both", failed, guesses.Load())
		}
	}
	t.Run("shared", func(t *testing.T) { try(t, 1000, urls(instances, "/shared")...) })
	t.Run("alone", func(t *testing.T) { try(t, 1000, instances[0].URL+"/alone") })
	for _, algorithm := range algorithms {
		if algorithm != "leaky_bucket" {
			t.Run(algorithm, func(t *testing.T) { try(t, 100, urls(instances, "/"+algorithm)...) })
		}
	}
	neverAlone(t, instances)
}
