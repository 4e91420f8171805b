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

// A client gets its 200s, then 429 with Retry-After, and 200 again after
// waiting exactly that long: with every algorithm, on both stores.
func TestRetryAfterIsExact(t *testing.T) {
	t.Parallel()
	redis := harness.StartRedis(t)
	// Left alone, its queue is as long as one second drains, and the three
	// that the others admit at once would not all find room in it.
	options := map[string]string{"leaky_bucket": " burst 3"}
	var site strings.Builder
	for _, store := range []string{"redis", "local"} {
		for _, algorithm := range algorithms {
			fmt.Fprintf(&site, "\trate_limit /%[1]s/%[2]s {\n\t\tzone %[1]s-%[2]s {\n\t\t\tkey one\n"+
				"\t\t\trule 3/1s %[2]s%[3]s\n\t\t\tstore %[1]s\n\t\t}\n\t}\n", store, algorithm, options[algorithm])
		}
	}
	site.WriteString("\trespond ok")
	caddy := harness.StartCaddy(t, harness.Config{Global: onRedis(redis, "timeout 1s"), Site: site.String()})

	// The limits differ in nothing but store and algorithm, so they wait together.
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

// waitsExactly sends one request after another until one is denied, waits, and
// sends it again.
func waitsExactly(t *testing.T, url string) {
	client := harness.Client(20)
	defer client.CloseIdleConnections()
	began := time.Now()
	denied, passed := untilDenied(t, client, url)
	// Three a second, and each algorithm lets as many pass once more at most.
	if most := 5 + int(3*denied.Got.Sub(began).Seconds()); passed < 3 || passed > most {
		t.Errorf("%d passed before the first denial, want the limit of 3, and at most %d in %v", passed, most, denied.Got.Sub(began))
	}
	seconds, err := strconv.Atoi(denied.RetryAfter)
	if err != nil || seconds < 1 || seconds > 4 {
		t.Fatalf("Retry-After %q, want whole seconds, at least 1 and at most two windows", denied.RetryAfter)
	}
	// Not a pause to let something settle: how long to wait is what is tested.
	time.Sleep(time.Until(denied.Got.Add(time.Duration(seconds) * time.Second)))
	if again := harness.Shoot(client, url); again.Err != nil || again.Status != http.StatusOK {
		t.Errorf("after waiting %d s: %v, want 200", seconds, harness.ByStatus([]harness.Shot{again}))
	}
}

// untilDenied returns the first denial and how many requests passed before it.
// A pacing rule answers late what it admits, so a request that is not answered
// soon does not hold up the next one.
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
