package limiter

import (
	"net/http"
	"slices"
	"strconv"
)

// headerFormat is what a value of the option headers adds to responses.
type headerFormat struct {
	name     string
	draft    bool  // RateLimit and RateLimit-Policy (draft.go)
	families []int // headers with three numbers
}

// formats are all formats. A new one is a row, with a row of allFamilies if it has three numbers, and a sentence of the
// comment of Handler.Headers (module.go), which is the user's documentation; all else that lists formats reads this.
// Headers of another shape are a field of headerFormat, for any, fillHeaders and fillFormats here, and a field of type
// headers, for add, addDenial and set (headers.go), removeFrom and mergeHeaders (failure.go). What only a denial sets
// is set in respond.go, and is a value in removeAnswer (failure.go).
var formats = []headerFormat{
	{name: DefaultHeaders, draft: true},
	{name: "legacy", families: []int{ofLegacy}},
	{name: "all", draft: true, families: []int{ofLegacy}},
	{name: "openai", families: []int{ofTokens, ofRequests}},
	{name: "off"},
}

// DefaultHeaders is the format without the option headers.
const DefaultHeaders = "draft"

// HeaderFormats returns the values of the option headers.
func HeaderFormats() (names []string) {
	for i := range formats {
		names = append(names, formats[i].name)
	}
	return names
}

// formatOf returns the format of a name; none: that of off.
func formatOf(name string) (f headerFormat) {
	if i := slices.Index(HeaderFormats(), name); i >= 0 {
		f = formats[i]
	}
	return f
}

// The families of headers with three numbers, of which the second is what remains.
const (
	ofLegacy = iota
	ofTokens
	ofRequests
	numFamilies

	remains = 1
)

// family is three headers with numbers.
type family struct {
	names  [3]string            // in canonical form
	unit   func(us int64) int64 // of the reset; nil: it is written as OpenAI writes durations
	wanted func(*Zone) bool     // which zones it is about; nil: all
}

// allFamilies are all families, by their numbers.
var allFamilies = [numFamilies]family{
	ofLegacy:   {names: [3]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}, unit: seconds},
	ofTokens:   {names: [3]string{"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"}, wanted: (*Zone).Settles},
	ofRequests: {names: [3]string{"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"}, wanted: func(z *Zone) bool { return !z.Settles() }},
}

// openAI reports whether responses have what else clients of OpenAI's API read (openai.go).
func (f *headerFormat) openAI() bool { return slices.Contains(f.families, ofTokens) }

// any reports whether there are headers at all.
func (f *headerFormat) any() bool { return f.draft || f.families != nil }

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
		if o.before != nil {
			others = o.before.all()
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
		h.families[f] = q.familyValues(&allFamilies[f])
	}
}

// familyValues returns the limit, what remains and the reset of the nearest rule of the zones that a family is about; on a
// denial, of those that deny, if any.
func (q *request) familyValues(of *family) *familyValues {
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
	return &familyValues{[...]string{text[:toLimit], text[toLimit:toRemaining], text[toRemaining:]}, denies}
}
