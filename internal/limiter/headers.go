package limiter

import (
	"net/http"
	"strconv"

	"github.com/dianalimiter/diana/stores"
)

// hasHeaders reports whether the response gets rate limit headers, if the limiter's have any.
func (q *request) hasHeaders() bool {
	for i, zones := 0, q.enforcing(); i < len(zones); i++ {
		// A zone check without results was not decided: the store is unavailable.
		if z := &zones[i]; z.inHeaders() && len(z.rules.Results) > 0 {
			return true
		}
	}
	return false
}

// fillHeaders sets the values of the rate limit headers.
func (q *request) fillHeaders(h *headers) {
	if q.l.headers.draft {
		h.draft[atLimit], h.draft[atPolicy] = q.rateLimit(), q.policy()
	}
	q.fillFamilies(h, q.l.headers.families)
	if q.l.follows && inErrorRoute(q.r) {
		h.addToKept(q.r.Context(), q.w.Header())
	}
}

// fillFormats sets, on a denial, the numbers of the formats that only handlers around this one have: theirs would
// be those of rules that do not deny.
func (q *request) fillFormats(h *headers, w http.ResponseWriter) {
	for o := outerWriter(w); o != nil; o = outerWriter(o.ResponseWriter) {
		others := o.headers
		if o.inErrorRoute {
			others = o.failure.all()
		}
		for _, format := range formats {
			if others.has(format.families) && !h.has(format.families) {
				q.fillFamilies(h, format.families)
			}
		}
	}
}

// fillFamilies sets the numbers of families.
func (q *request) fillFamilies(h *headers, families []int) {
	for _, f := range families {
		h.numbers[f] = q.numbers(&allFamilies[f])
	}
}

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

// numbers returns the limit, what remains and the reset of the nearest rule of the zones that a family is about; on a
// denial, of those that deny, if any.
func (q *request) numbers(of *family) *numbers {
	nearest, limit, denies := q.nearest(of.wanted)
	if nearest == nil {
		return nil
	}
	b := strconv.AppendInt(q.text[:0], limit, 10)
	toLimit := len(b)
	b = strconv.AppendInt(b, nearest.Remaining, 10)
	toRemaining := len(b)
	reset := nearest.Reset
	if reset == 0 && q.verdict != admitted { // what running requests hold is free when they end
		reset = heldRetry.Microseconds()
	}
	if of.unit != nil {
		b = strconv.AppendInt(b, of.unit(reset), 10)
	} else {
		b = append(b, openAIDuration(reset)...)
	}
	q.text = b
	text := string(b)
	return &numbers{[...]string{text[:toLimit], text[toLimit:toRemaining], text[toRemaining:]}, denies}
}
