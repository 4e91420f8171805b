package limiter

import (
	"net/http"

	"github.com/dianalimiter/diana/internal/body"
)

// Others is what a limiter has to know of other handlers of its server.
type Others struct {
	// Includes says whether templates may send virtual requests to the server (httpInclude).
	Includes bool

	// BodySizes are the bounds of request bodies (request_body max_size), in bytes.
	BodySizes []int64
}

// NoteOthers tells the limiter of the others.
func (l *Limiter) NoteOthers(o *Others) { l.others.Store(o) }

// headerDecided marks a request that was decided, for its virtual requests, which have its header and nothing else
// of it. The field has no value: no client can send such a field, and none is sent to upstreams.
const headerDecided = "Rate-Limit-Decided"

// mayInclude reports whether a request may have virtual requests.
func (l *Limiter) mayInclude() bool {
	o := l.others.Load()
	return o != nil && o.Includes
}

// noteDecided marks a request, if it may have virtual requests.
func (l *Limiter) noteDecided(r *http.Request) {
	if l.mayInclude() {
		r.Header[headerDecided] = nil
	}
}

// isVirtual reports whether a request is a virtual one of a request that was decided, which it is part of. It
// came over no connection.
func isVirtual(r *http.Request) bool {
	mark, marked := r.Header[headerDecided]
	return marked && len(mark) == 0 && r.Context().Value(http.LocalAddrContextKey) == nil
}

// growth is by how many bytes a request becomes longer, at most, that is made to ask for its usage.
const growth = int64(len(`"stream_options":{"include_usage":true},`))

// mayGrow reports whether the body of the request may become longer without being too long for a bound that it has
// met.
func (q *request) mayGrow() bool {
	o, b := q.l.others.Load(), body.Of(q.r)
	if o == nil || b == nil {
		return true
	}
	text, _ := b.Bytes()
	for _, most := range o.BodySizes {
		if n := int64(len(text)); n <= most && n+growth > most {
			return false
		}
	}
	return true
}
