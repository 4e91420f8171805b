package limiter

import (
	"io"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
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

// writer sets the headers when the response's header is written, so that they
// replace an upstream's, and notes the status.
type writer struct {
	caddyhttp.ResponseWriterWrapper
	headers headers
	outer   *writer  // of a rate_limit handler that wraps this one; it writes for both
	inner   *headers // of a rate_limit handler that this one wraps
	status  int      // 0: nothing was written yet
}

func newWriter(w http.ResponseWriter) *writer {
	rw := &writer{outer: outerWriter(w)}
	rw.ResponseWriter = w
	return rw
}

// outerWriter finds a writer of this type among those that w wraps.
func outerWriter(w http.ResponseWriter) *writer {
	for {
		switch t := w.(type) {
		case *writer:
			return t
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return nil
		}
	}
}

// setHeaders sets the headers, or leaves them to the handler around this one.
func (rw *writer) setHeaders() {
	rw.headers.add(rw.inner)
	if rw.outer != nil {
		rw.outer.inner = &rw.headers
		return
	}
	rw.headers.set(rw.Header())
}

// WriteHeader implements http.ResponseWriter. Informational responses come
// before the one that counts; 101 is the last of a connection.
func (rw *writer) WriteHeader(status int) {
	if rw.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		rw.status = status
		rw.setHeaders()
	}
	rw.ResponseWriter.WriteHeader(status)
}

func (rw *writer) implicit() {
	if rw.status == 0 {
		rw.WriteHeader(http.StatusOK)
	}
}

// Write implements http.ResponseWriter.
func (rw *writer) Write(b []byte) (int, error) {
	rw.implicit()
	return rw.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom.
func (rw *writer) ReadFrom(r io.Reader) (int64, error) {
	rw.implicit()
	return rw.ResponseWriterWrapper.ReadFrom(r)
}

// FlushError lets http.ResponseController flush, which writes the header.
func (rw *writer) FlushError() error {
	rw.implicit()
	return http.NewResponseController(rw.ResponseWriter).Flush()
}

// finish sets the headers of a response that is yet to be written: by the error
// routes, which write around this writer, or by the server.
func (rw *writer) finish(err error) {
	if rw.status == 0 {
		rw.setHeaders()
		if err == nil {
			rw.status = http.StatusOK
		}
	}
}
