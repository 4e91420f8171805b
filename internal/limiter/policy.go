package limiter

import (
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// maxHeaderRules is the greatest number of rules in the rate limit headers.
const maxHeaderRules = 4

func separate(b []byte) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	return b
}

// appendPolicy appends the items of RateLimit-Policy for the first n rules.
func appendPolicy(b []byte, names []string, rules []algorithms.Rule, n int) []byte {
	for i, r := range rules[:min(n, len(rules))] {
		b = append(separate(b), '"')
		b = append(b, names[i]...)
		b = append(b, `";q=`...)
		b = appendInteger(b, r.Limit())
		if w := r.Window(); w >= second {
			b = append(b, ";w="...)
			b = appendInteger(b, seconds(w))
		}
		if burst := r.Capacity(); burst != r.Limit() { // what remains counts up to it
			b = append(b, ";burst="...)
			b = appendInteger(b, burst)
		}
	}
	return b
}

// maxInteger is the greatest integer of a structured field (RFC 9651). A limit may be
// greater.
const maxInteger = 999_999_999_999_999

func appendInteger(b []byte, v int64) []byte {
	return strconv.AppendInt(b, min(v, maxInteger), 10)
}

const second = int64(time.Second / time.Microsecond)

// seconds returns whole seconds, rounded up.
func seconds(us int64) int64 { return (us + second - 1) / second }
