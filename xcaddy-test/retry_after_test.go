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

// retryWindow is long enough that a busy machine uses up a limit of three in it.
const retryWindow = 12 * time.Second

// TestRetryAfterIsExact checks, for every algorithm and both stores, that a denied
// request is admitted after waiting exactly its Retry-After.
func TestRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	// Its default queue is too short for the three requests that the other algorithms admit
	// immediately.
	options := map[string]string{"leaky_bucket": " burst 3"}
	var site strings.Builder
	for _, store := range []string{"redis", "local"} {
		for _, algorithm := range algorithms {
			fmt.Fprintf(&site, "\trate_limit /%[1]s/%[2]s {\n\t\tzone %[1]s-%[2]s {\n\t\t\tkey one\n"+
				"\t\t\trule 3/%[4]v %[2]s%[3]s\n\t\t\tstore %[1]s\n\t\t}\n\t}\n", store, algorithm, options[algorithm], retryWindow)
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
	shots := untilDenied(t, client, url)
	took := time.Since(began)
	// Three per window, plus at most one more burst of three.
	passed := len(harness.With(http.StatusOK, shots))
	if most := 6 + int(3*took/retryWindow); passed < 3 || passed > most {
		t.Errorf("%d passed, want the limit of 3, and at most %d in %v", passed, most, took)
	}
	denied := harness.With(http.StatusTooManyRequests, shots)
	last := denied[len(denied)-1]
	seconds, err := strconv.Atoi(last.RetryAfter)
	if most := int(2 * retryWindow / time.Second); err != nil || seconds < 1 || seconds > most {
		t.Fatalf("Retry-After %q, want whole seconds, at least 1 and at most two windows", last.RetryAfter)
	}
	// This wait is the subject of the test.
	time.Sleep(time.Until(last.Got.Add(time.Duration(seconds) * time.Second)))
	if again := harness.Shoot(client, url); again.Err != nil || again.Status != http.StatusOK {
		t.Errorf("after waiting %d s: %v, want 200", seconds, harness.ByStatus([]harness.Shot{again}))
	}
}

// untilDenied sends requests until one is denied, and returns all. A pacing rule delays what
// it admits, so that a request without an early response does not hold up the next one.
func untilDenied(t *testing.T, client *http.Client, url string) (shots []harness.Shot) {
	t.Helper()
	answers, isDenied := make(chan harness.Shot, 200), false
	add := func(shot harness.Shot) {
		shots = append(shots, shot)
		isDenied = isDenied || shot.Status == http.StatusTooManyRequests
	}
	sent := 0
	for ; !isDenied && sent < cap(answers); sent++ {
		go func() { answers <- harness.Shoot(client, url) }()
		select {
		case shot := <-answers:
			add(shot)
		case <-time.After(50 * time.Millisecond):
		}
	}
	for len(shots) < sent {
		add(<-answers)
	}
	harness.OnlyStatuses(t, shots, http.StatusOK, http.StatusTooManyRequests)
	if !isDenied {
		t.Fatalf("none of %d requests was denied", sent)
	}
	return shots
}
