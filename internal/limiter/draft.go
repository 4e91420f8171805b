package limiter

import (
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

const (
	atPolicy = iota
	atLimit
)

// draftNames are header names in canonical form.
var draftNames = [...]string{"Ratelimit-Policy", "Ratelimit"}

// maxHeaderRules is the greatest number of rules in the rate limit headers.
const maxHeaderRules = 4

func separate(b []byte) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	return b
}

// The items of RateLimit-Policy and RateLimit are written here and nowhere else. Their
// parameters are those of draft-ietf-httpapi-ratelimit-headers-10; a later one may rename r and t.
// A parameter that it does not have carries our name.

// rateLimit returns the value of RateLimit (draft-ietf-httpapi-ratelimit-headers-10) for the
// first maxHeaderRules rules.
func (q *request) rateLimit() string {
	b, left := q.text[:0], maxHeaderRules
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		z := &zones[i]
		if !z.inHeaders() {
			continue
		}
		c := z.rules
		n := min(len(c.Results), left)
		left -= n
		for r := range n {
			b = appendLimit(separate(b), z.set.Names[r], &c.Results[r])
		}
	}
	q.text = b
	return string(b)
}

// policy returns the value of RateLimit-Policy for the same rules.
func (q *request) policy() string {
	if len(q.zones) == 1 && q.check.Mode != stores.ModeFallback && q.zones[0].set.policy != "" {
		return q.zones[0].set.policy // built when the rules were compiled
	}
	b, left := q.text[:0], maxHeaderRules
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		if z := &zones[i]; z.inHeaders() {
			c := z.rules
			n := min(len(c.Results), left)
			left -= n
			b = appendPolicy(b, z.set.Names, c.Rules, n, q.check.Now)
		}
	}
	q.text = b
	return string(b)
}

// windowAt returns the length of a rule's window at now, in microseconds.
func windowAt(r algorithms.Rule, now int64) int64 {
	if r, dated := r.(algorithms.Dated); dated {
		start, next := r.Present(now)
		return next - start
	}
	return r.Window()
}

// constantPolicy returns the value of RateLimit-Policy for rules; empty: it depends on the
// time, because a window follows the calendar.
func constantPolicy(names []string, rules []algorithms.Rule) string {
	for _, r := range rules {
		if _, dated := r.(algorithms.Dated); dated {
			return ""
		}
	}
	return string(appendPolicy(nil, names, rules, maxHeaderRules, 0))
}

// appendPolicy appends the items of RateLimit-Policy at now for the first n rules.
func appendPolicy(b []byte, names []string, rules []algorithms.Rule, n int, now int64) []byte {
	for i, r := range rules[:min(n, len(rules))] {
		b = append(separate(b), '"')
		b = append(b, names[i]...)
		b = append(b, `";q=`...)
		b = appendInteger(b, r.Limit())
		if w := windowAt(r, now); w >= second {
			b = append(b, ";w="...)
			b = appendInteger(b, seconds(w))
		}
		if burst := r.Capacity(); burst != r.Limit() { // what remains counts up to it
			b = append(b, ";diana-burst="...)
			b = appendInteger(b, burst)
		}
	}
	return b
}

// appendLimit appends the item of RateLimit for a rule.
func appendLimit(b []byte, name string, r *stores.Result) []byte {
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `";r=`...)
	b = appendInteger(b, r.Remaining)
	b = append(b, ";t="...)
	return appendInteger(b, seconds(r.More))
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
