package limiter

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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

// add appends the headers of a later handler.
func (h *headers) add(later *headers) {
	for i := range h.draft {
		h.draft[i] = join(h.draft[i], later.draft[i])
	}
	if h.legacy == nil {
		h.legacy = later.legacy
	}
	h.openAI = slices.Concat(later.openAI, h.openAI) // the last of a name counts
}

// join returns two lists of items as one. Of a rule that is in both, which an error route may
// decide again, the later item is kept.
func join(list, later string) string {
	b := make([]byte, 0, len(list)+len(", ")+len(later))
	for item := range strings.SplitSeq(list, ", ") {
		if name := item[:strings.IndexByte(item, ';')+1]; !strings.Contains(later, name) {
			b = append(separate(b), item...)
		}
	}
	if later != "" {
		b = append(separate(b), later...)
	}
	return string(b)
}

// varHeaders is the variable of a request with the headers that it got before an error.
const varHeaders = "rate_limit.headers"

// keep keeps the headers for the handlers of an error route.
func (h *headers) keep(ctx context.Context) { caddyhttp.SetVar(ctx, varHeaders, h) }

// addToKept puts the headers that the request got before its error before these.
func (h *headers) addToKept(ctx context.Context) {
	if kept, _ := caddyhttp.GetVar(ctx, varHeaders).(*headers); kept != nil {
		all := *kept
		all.add(h)
		*h = all
	}
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
