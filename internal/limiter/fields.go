package limiter

import (
	"net/http"
	"slices"
)

// headers are the values of the rate limit headers of a response.
type headers struct {
	draft  [2]string  // of draftNames; empty: not set
	legacy *[3]string // of legacyNames; nil: not set
	openAI []namedHeader
}

// namedHeader is a header with its name in canonical form.
type namedHeader struct{ name, value string }

const (
	atPolicy = iota
	atLimit
)

// Header names in canonical form.
var (
	draftNames  = [...]string{"Ratelimit-Policy", "Ratelimit"}
	legacyNames = [...]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
)

const (
	headerContentType  = "Content-Type"
	headerRetryAfter   = "Retry-After"
	headerCacheControl = "Cache-Control"
)

// add appends the headers of an inner handler.
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
	h.openAI = slices.Concat(inner.openAI, h.openAI) // the last of a name counts
}

// set sets the headers. The values are slices of h, to save allocations, each of full
// capacity, so that appending to one does not overwrite the next.
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
	for _, f := range h.openAI {
		to[f.name] = []string{f.value}
	}
}
