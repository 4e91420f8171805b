package diana

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// maxHeaderRules is how many rules the headers tell of.
const maxHeaderRules = 4

// headers are what a response tells its client of where it stands: the values of
// draftNames, empty where there is none, and of legacyNames.
type headers struct {
	draft  [2]string
	legacy *[3]string // nil: none, as in most responses
}

const (
	atPolicy = iota
	atLimit
)

// Names in canonical form.
var (
	draftNames  = [...]string{"Ratelimit-Policy", "Ratelimit"}
	legacyNames = [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
)

const (
	headerRetryAfter   = "Retry-After"
	headerCacheControl = "Cache-Control"
	headerContentType  = "Content-Type"
)

// add appends the headers of a handler inside this one.
func (h *headers) add(inner *headers) {
	if inner == nil {
		return
	}
	for i := range h.draft {
		if h.draft[i] != "" && inner.draft[i] != "" {
			h.draft[i] += ", "
		}
		h.draft[i] += inner.draft[i]
	}
	if h.legacy == nil {
		h.legacy = inner.legacy
	}
}

// set puts the headers in place of any others of their names. The values stay
// where they are, each with no room behind it.
func (h *headers) set(to http.Header) {
	for i, name := range draftNames {
		if h.draft[i] != "" {
			to[name] = h.draft[i : i+1 : i+1]
		}
	}
	if h.legacy != nil {
		for i, name := range legacyNames {
			to[name] = h.legacy[i : i+1 : i+1]
		}
	}
}

// tells says whether there is anything for headers to tell of.
func (q *request) tells() bool {
	if q.h.headers == headersOff || q.outright != nil {
		return false
	}
	for i := range q.uses {
		if u := &q.uses[i]; u.isTold() && len(q.ask.Zones[u.item].Results) > 0 {
			return true
		}
	}
	return false
}

// isTold says that headers may tell of the zone.
func (u *use) isTold() bool { return !u.shadow && !u.z.quiet && u.item >= 0 }

// fill writes into h where the client stands after the decision.
func (q *request) fill(h *headers) {
	if q.h.headers != headersLegacy {
		q.draft(h)
	}
	if q.h.headers != headersDraft {
		q.legacy(h)
	}
}

// draft writes RateLimit and RateLimit-Policy, of
// draft-ietf-httpapi-ratelimit-headers-10, for the first rules in the order of
// the configuration.
func (q *request) draft(h *headers) {
	b, left := q.text[:0], maxHeaderRules
	for i := range q.uses {
		u := &q.uses[i]
		if !u.isTold() {
			continue
		}
		it := &q.ask.Zones[u.item] // without results its store is away and was not replaced
		n := min(len(it.Results), left)
		left -= n
		for r := range n {
			b = appendLimit(separate(b), u.set.names[r], &it.Results[r])
		}
	}
	h.draft[atLimit] = string(b)
	h.draft[atPolicy], b = q.policy(b[:0])
	q.text = b
}

// policy is the value of RateLimit-Policy for the same rules. What had to be
// written for it is in the room that is returned.
func (q *request) policy(room []byte) (string, []byte) {
	if len(q.uses) == 1 && q.ask.Mode != stores.ModeFallback {
		return q.uses[0].set.policy, room // built once
	}
	b, left := room, maxHeaderRules
	for i := range q.uses {
		if u := &q.uses[i]; u.isTold() {
			it := &q.ask.Zones[u.item]
			n := min(len(it.Results), left)
			left -= n
			b = appendPolicy(b, u.set.names, it.Rules, n)
		}
	}
	return string(b), b
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
		if !u.isTold() {
			continue
		}
		if res, l := nearestOf(&q.ask.Zones[u.item]); res != nil && (nearest == nil || nearer(res, l, nearest, limit)) {
			nearest, limit = res, l
		}
	}
	if nearest == nil {
		return
	}
	b := strconv.AppendInt(q.text[:0], limit, 10)
	toLeft := len(b)
	b = strconv.AppendInt(b, nearest.Remaining, 10)
	toEnd := len(b)
	b = strconv.AppendInt(b, seconds(nearest.Reset), 10)
	text := string(b)
	h.legacy = &[...]string{text[:toLeft], text[toLeft:toEnd], text[toEnd:]}
	q.text = b
}

// nearestOf is the item's rule with the smallest part of its limit left.
func nearestOf(it *stores.ZoneCheck) (nearest *stores.Result, limit int64) {
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
