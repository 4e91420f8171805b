package limiter

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// longestWait is the longest wait, in milliseconds, that clients of OpenAI's API are asked to make.
// Their libraries wait as long as they are told, be it for days.
const longestWait = 60_000

// openAIDuration returns a duration as OpenAI writes it, such as 6m0s or 12ms.
func openAIDuration(us int64) string {
	return (time.Duration(milliseconds(us)) * time.Millisecond).String()
}

// setRetryOpenAI sets retry-after-ms, which is Retry-After in milliseconds, and x-should-retry, which
// keeps clients from a wait that is long or has no end. after is the value of Retry-After. It reports whether
// clients are to wait.
func (e *exceeded) setRetryOpenAI(h http.Header, after string, jitter float64) (retries bool) {
	wait := int64(longestWait + 1)
	if e.retry != algorithms.Never {
		wait = max(1, milliseconds(e.retry))
		if s, err := strconv.ParseInt(after, 10, 64); jitter > 0 && err == nil {
			wait = 1000 * s
		}
		h[headerRetryMilliseconds] = []string{strconv.FormatInt(wait, 10)}
	}
	if wait > longestWait {
		h[headerShouldRetry] = []string{"false"}
	}
	return wait <= longestWait
}

// milliseconds returns whole milliseconds, rounded up.
func milliseconds(us int64) int64 { return (us + 999) / 1000 }
