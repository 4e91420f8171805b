package xcaddytest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/xcaddy-test/harness"
)

// TestRetryAfterIsExact checks, for every algorithm and both stores, that a denied
// request is admitted after waiting exactly its Retry-After.
func TestRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	// Its default queue drains in one second, too short for the three requests
	// that the other algorithms admit immediately.
	options := map[string]string{"leaky_bucket": " burst 3"}
	var site strings.Builder
	for _, store := range []string{"redis", "local"} {
		for _, algorithm := range algorithms {
			fmt.Fprintf(&site, "\trate_limit /%[1]s/%[2]s {\n\t\tzone %[1]s-%[2]s {\n\t\t\tkey one\n"+
				"\t\t\trule 3/1s %[2]s%[3]s\n\t\t\tstore %[1]s\n\t\t}\n\t}\n", store, algorithm, options[algorithm])
		}
	}
	site.WriteString("\trespond ok")
	caddy := harness.StartCaddy(t, harness.Config{Global: onRedis(redis, "timeout 10s"), Site: site.String()})

	// The limits differ only in store and algorithm, so they wait in parallel.
	t.Run("all", func(t *testing.T) {
		for _, store := range []string{"redis", "local"} {
			for _, algorithm := range algorithms {
				t.Run(store+" "+algorithm, func(t *testing.T) {
					t.Parallel()
					waitsExactly(t, caddy.URL+"/"+store+"/"+algorithm)
				})
			}
		}
	})
}

// waitsExactly sends requests until one is denied, waits for its Retry-After, and
// sends it again.
func waitsExactly(t *testing.T, url string) {
	client := harness.Client(20)
	defer client.CloseIdleConnections()
	began := time.Now()
	denied, passed := untilDenied(t, client, url)
	// Three per second, plus at most one more burst of three.
	if most := 5 + int(3*denied.Got.Sub(began).Seconds()); passed < 3 || passed > most {
		t.Errorf("%d passed before the first denial, want the limit of 3, and at most %d in %v", passed, most, denied.Got.Sub(began))
	}
	seconds, err := strconv.Atoi(denied.RetryAfter)
	if err != nil || seconds < 1 || seconds > 4 {
		t.Fatalf("Retry-After %q, want whole seconds, at least 1 and at most two windows", denied.RetryAfter)
	}
	// This wait is the subject of the test.
	time.Sleep(time.Until(denied.Got.Add(time.Duration(seconds) * time.Second)))
	if again := harness.Shoot(client, url); again.Err != nil || again.Status != http.StatusOK {
		t.Errorf("after waiting %d s: %v, want 200", seconds, harness.ByStatus([]harness.Shot{again}))
	}
}

// untilDenied returns the first denial and the number of requests that passed before
// it. A pacing rule delays what it admits, so a request without an early response
// does not hold up the next one.
func untilDenied(t *testing.T, client *http.Client, url string) (denied harness.Shot, passed int) {
	answers := make(chan harness.Shot, 20)
	for sent := range cap(answers) {
		go func() { answers <- harness.Shoot(client, url) }()
		select {
		case shot := <-answers:
			harness.OnlyStatuses(t, []harness.Shot{shot}, http.StatusOK, http.StatusTooManyRequests)
			if shot.Status == http.StatusTooManyRequests {
				return shot, sent
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Fatalf("none of %d requests was denied", cap(answers))
	return harness.Shot{}, 0
}
