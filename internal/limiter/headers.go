package limiter

import (
	"net/http"
	"strconv"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/stores"
)

// headers are the rate limit headers of a response: the values of draftNames, empty
// where there is none, and of legacyNames.
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

// add appends the headers of a handler that this one wraps.
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

// set replaces the headers of these names. The values are slices of h, each without
// room behind it, so that nothing is allocated for them.
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

// inHeaders reports whether headers describe the zone.
func (z *zoneResult) inHeaders() bool { return !z.shadow && !z.zone.noHeaders && z.rules >= 0 }

// hasHeaders reports whether there is anything for headers to describe.
func (q *request) hasHeaders() bool {
	if q.l.o.Headers == config.HeadersOff || q.immediate != nil {
		return false
	}
	for i := range q.zones {
		// Without results the store is away, and nothing decided in its place.
		if z := &q.zones[i]; z.inHeaders() && len(q.check.Items[z.rules].Results) > 0 {
			return true
		}
	}
	return false
}

// fillHeaders writes into h where the client stands after the decision.
func (q *request) fillHeaders(h *headers) {
	if q.l.o.Headers != config.HeadersLegacy {
		h.draft[atLimit], q.text = q.limits(q.text[:0])
		h.draft[atPolicy], q.text = q.policy(q.text[:0])
	}
	if q.l.o.Headers != config.HeadersDraft {
		h.legacy, q.text = q.legacy(q.text[:0])
	}
}

// limits returns the value of RateLimit, of draft-ietf-httpapi-ratelimit-headers-10,
// for the first rules in the order of the configuration. b is room to write it in.
func (d *decision) limits(b []byte) (string, []byte) {
	left := maxHeaderRules
	for i := range d.zones {
		z := &d.zones[i]
		if !z.inHeaders() {
			continue
		}
		c := &d.check.Items[z.rules]
		n := min(len(c.Results), left)
		left -= n
		for r := range n {
			b = appendLimit(separate(b), z.set.Names[r], &c.Results[r])
		}
	}
	return string(b), b
}

// policy returns the value of RateLimit-Policy for the same rules.
func (d *decision) policy(b []byte) (string, []byte) {
	if len(d.zones) == 1 && d.check.Mode != stores.ModeAlone {
		return d.zones[0].set.policy, b // built once
	}
	left := maxHeaderRules
	for i := range d.zones {
		if z := &d.zones[i]; z.inHeaders() {
			c := &d.check.Items[z.rules]
			n := min(len(c.Results), left)
			left -= n
			b = appendPolicy(b, z.set.Names, c.Rules, n)
		}
	}
	return string(b), b
}

// legacy returns the values of X-RateLimit-*, of the rule that is nearest to its
// limit.
func (d *decision) legacy(b []byte) (*[3]string, []byte) {
	var nearest *stores.Result
	var limit int64
	for i := range d.zones {
		z := &d.zones[i]
		if !z.inHeaders() {
			continue
		}
		if res, l := nearestOf(&d.check.Items[z.rules]); res != nil && (nearest == nil || nearer(res, l, nearest, limit)) {
			nearest, limit = res, l
		}
	}
	if nearest == nil {
		return nil, b
	}
	b = strconv.AppendInt(b, limit, 10)
	toLimit := len(b)
	b = strconv.AppendInt(b, nearest.Remaining, 10)
	toRemaining := len(b)
	b = strconv.AppendInt(b, seconds(nearest.Reset), 10)
	text := string(b)
	return &[...]string{text[:toLimit], text[toLimit:toRemaining], text[toRemaining:]}, b
}

func appendLimit(b []byte, name string, r *stores.Result) []byte {
	b = append(b, '"')
	b = append(b, name...)
	b = append(b, `";r=`...)
	b = appendInteger(b, r.Remaining)
	b = append(b, ";t="...)
	return appendInteger(b, seconds(r.Reset))
}
