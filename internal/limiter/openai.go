package limiter

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// openAI returns the headers of OpenAI's API: the limits of tokens are those of the zones whose
// responses tell the cost, and those of requests are those of the others.
func (d *decision) openAI() (list []namedHeader) {
	for unit, tokens := range map[string]bool{"Tokens": true, "Requests": false} {
		res, limit := d.nearest(func(z *Zone) bool { return z.Settles() == tokens })
		if res == nil {
			continue
		}
		list = append(list,
			namedHeader{"X-Ratelimit-Limit-" + unit, strconv.FormatInt(limit, 10)},
			namedHeader{"X-Ratelimit-Remaining-" + unit, strconv.FormatInt(res.Remaining, 10)},
			namedHeader{"X-Ratelimit-Reset-" + unit, (time.Duration(milliseconds(res.Reset)) * time.Millisecond).String()},
		)
	}
	return list
}

// setRetryMilliseconds sets retry-after-ms, which is Retry-After in milliseconds. after is its value.
func (e *exceeded) setRetryMilliseconds(h http.Header, after string, jitter float64) {
	if e.retry == algorithms.Never {
		return
	}
	ms := strconv.FormatInt(max(1, milliseconds(e.retry)), 10)
	if jitter > 0 {
		ms = after + "000"
	}
	h["Retry-After-Ms"] = []string{ms}
}

// milliseconds returns whole milliseconds, rounded up.
func milliseconds(us int64) int64 { return (us + 999) / 1000 }
