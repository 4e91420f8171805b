package diana

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// maxHeaderRules is how many rules the headers tell of.
const maxHeaderRules = 4

// headers are what a response tells its client of where it stands: the values
// of headerNames, empty where there is none.
type headers [numHeaders]string

const (
	atPolicy = iota
	atLimit
	atLegacyLimit
	atLegacyLeft
	atLegacyEnd
	numHeaders
)

// headerNames are in canonical form.
var headerNames = [numHeaders]string{"Ratelimit-Policy", "Ratelimit", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}

const (
	headerRetryAfter   = "Retry-After"
	headerCacheControl = "Cache-Control"
	headerContentType  = "Content-Type"
)

func (h *headers) empty() bool { return h[atPolicy] == "" && h[atLegacyLimit] == "" }

// add appends the headers of a handler inside this one.
func (h *headers) add(inner *headers) {
	if inner == nil {
		return
	}
	for _, i := range [...]int{atPolicy, atLimit} {
		if h[i] != "" && inner[i] != "" {
			h[i] += ", "
		}
		h[i] += inner[i]
	}
	if h[atLegacyLimit] == "" {
		copy(h[atLegacyLimit:], inner[atLegacyLimit:])
	}
}

// set puts the headers in place of any others of their names. The values stay
// where they are, each with no room behind it.
func (h *headers) set(to http.Header) {
	for i, name := range headerNames {
		if h[i] != "" {
			to[name] = h[i : i+1 : i+1]
		}
	}
}

// headers says where the client stands after the decision.
func (q *request) headers() (h headers) {
	if !q.counted() {
		return h
	}
	if q.h.headers != headersLegacy {
		q.draft(&h)
	}
	if q.h.headers != headersDraft {
		q.legacy(&h)
	}
	return h
}

// draft writes RateLimit and RateLimit-Policy, of
// draft-ietf-httpapi-ratelimit-headers-10, for the first rules in the order of
// the configuration.
func (q *request) draft(h *headers) {
	var limitRoom, policyRoom [256]byte
	limit, policy := limitRoom[:0], policyRoom[:0]
	left := maxHeaderRules
	for i := range q.uses {
		u := &q.uses[i]
		if u.shadow || u.z.quiet || u.item < 0 || left == 0 {
			continue
		}
		it := &q.ask.Items[u.item]
		n := min(len(it.Results), left)
		if n == 0 {
			continue // its store is away and was not replaced
		}
		left -= n
		for r := range n {
			limit = appendLimit(separate(limit), u.set.names[r], &it.Results[r])
		}
		if len(q.uses) == 1 && q.ask.Mode != stores.ModeAlone {
			h[atPolicy] = u.set.policy // built once
		} else {
			policy = appendPolicy(policy, u.set.names, it.Rules, n)
		}
	}
	if len(policy) > 0 {
		h[atPolicy] = string(policy)
	}
	h[atLimit] = string(limit)
}

func separate(b []byte) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	return b
}

// appendPolicy appends the first n rules as RateLimit-Policy has them.
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
	}
	return b
}

func appendLimit(b []byte, name string, r *stores.Result) []byte {
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `";r=`...)
	b = appendInteger(b, r.Remaining)
	b = append(b, ";t="...)
	return appendInteger(b, seconds(r.Reset))
}

// maxInteger is the greatest number that a structured field (RFC 9651) holds.
// A limit may be greater.
const maxInteger = 999_999_999_999_999

func appendInteger(b []byte, v int64) []byte {
	return strconv.AppendInt(b, min(v, maxInteger), 10)
}

// legacy writes X-RateLimit-*, of the rule that is nearest to its limit.
func (q *request) legacy(h *headers) {
	var nearest *stores.Result
	var limit int64
	for i := range q.uses {
		u := &q.uses[i]
		if u.shadow || u.z.quiet || u.item < 0 {
			continue
		}
		if res, l := nearestOf(&q.ask.Items[u.item]); res != nil && (nearest == nil || nearer(res, l, nearest, limit)) {
			nearest, limit = res, l
		}
	}
	if nearest != nil {
		h[atLegacyLimit] = strconv.FormatInt(limit, 10)
		h[atLegacyLeft] = strconv.FormatInt(nearest.Remaining, 10)
		h[atLegacyEnd] = strconv.FormatInt(seconds(nearest.Reset), 10)
	}
}

// nearestOf is the item's rule with the smallest part of its limit left.
func nearestOf(it *stores.Item) (nearest *stores.Result, limit int64) {
	for i := range it.Results {
		res, l := &it.Results[i], it.Rules[i].Limit()
		if nearest == nil || nearer(res, l, nearest, limit) {
			nearest, limit = res, l
		}
	}
	return nearest, limit
}

func nearer(a *stores.Result, limitA int64, b *stores.Result, limitB int64) bool {
	return float64(a.Remaining)/float64(limitA) < float64(b.Remaining)/float64(limitB)
}

const second = int64(time.Second / time.Microsecond)

// seconds are whole seconds, rounded up.
func seconds(us int64) int64 { return (us + second - 1) / second }
