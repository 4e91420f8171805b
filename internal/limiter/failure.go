package limiter

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/body"
)

// failure is an error together with what the request got before it, for the error routes. It travels in the error,
// because nothing may be written to the request once a next handler has run: a goroutine of that handler may still read
// the request.
type failure struct {
	error

	headers headers   // of the handlers that admitted the request
	denial  *exceeded // of the request; nil: all handlers admitted it
	status  int       // of the denial
	body    []byte    // of the denial, if the error route writes none; nil: it has none
	openAI  [2]string // retry-after-ms and x-should-retry of the denial

	read *http.Request // the request, if a handler has read its body; nil: none has

	unanswered []*unanswered // of the handlers that admitted the request, the innermost first
	taken      bool          // whether an error route handles it: handlers inside that route do not see it
}

// Unwrap returns the error itself.
func (f *failure) Unwrap() error { return f.error }

// failed returns the failure in an error, or a new one, and the error that contains it. A HandlerError stays one, because
// Caddy asks for that type.
func failed(err error) (*failure, error) {
	if f, ok := errors.AsType[*failure](err); ok && !f.taken {
		return f, err
	}
	f := new(failure)
	if he, ok := err.(caddyhttp.HandlerError); ok { //nolint:errorlint // as Caddy does
		if f.error = he.Err; f.error == nil {
			f.error = errors.New(http.StatusText(he.StatusCode)) // as {http.error.message} has it
		}
		he.Err = f
		return f, he
	}
	f.error = err
	return f, f
}

// failureOf returns the failure that led a request to its error route; nil: there is none, or an error route around has
// taken it.
func failureOf(ctx context.Context) *failure {
	err, _ := ctx.Value(caddyhttp.ErrorCtxKey).(error)
	if f, ok := errors.AsType[*failure](err); ok && !f.taken {
		return f
	}
	return nil
}

// withBody returns an error that contains the request if its body was read. A handler such as tracing copies the request,
// and error routes may get the original, whose body is at its end.
func withBody(err error, r *http.Request) error {
	if body.Of(r) == nil {
		return err
	}
	f, err := failed(err)
	if f.read == nil {
		f.read = r
	}
	return err
}

// handOn gives the request the body that a handler has read.
func (f *failure) handOn(r *http.Request) {
	if f.read != nil && body.Of(r) == nil {
		r.Body, r.ContentLength = f.read.Body, f.read.ContentLength
	}
}

// all returns the headers for the response to the error.
func (f *failure) all() headers {
	h := f.headers
	if f.denial != nil {
		h.addDenial(&f.denial.headers)
	}
	return h
}

// addToKept prepends the headers that the request got before its error, and removes them from the response's header.
func (h *headers) addToKept(ctx context.Context, from http.Header) {
	f := failureOf(ctx)
	if f == nil {
		return
	}
	all := f.all()
	all.removeFrom(from, &all)
	all.add(h)
	*h = all
}

// ErrorRoute is a handler around the error routes of a server or of a subroute. When the header of the response is
// written, it adds the headers that the request got before its error. It charges the response to the zones that admitted
// the request.
type ErrorRoute struct {
	// Inner says that others may handle an error of these routes.
	Inner bool
}

// CaddyModule returns the Caddy module information. The module is not registered: no configuration
// names it.
func (ErrorRoute) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit_error_route", New: func() caddy.Module { return ErrorRoute{} }}
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (e ErrorRoute) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) (err error) {
	f := failureOf(r.Context())
	if f == nil {
		return next.ServeHTTP(w, r)
	}
	f.taken = true
	f.handOn(r)
	answers := f.answers(w, r)
	rw := newWriter(answers.w, false)
	rw.before = f
	cut := true // if next panics
	defer func() { err = answers.end(cut, e.Inner && rw.status == 0, err) }()
	err = f.serve(rw, r, next)
	cut = err != nil && rw.status != 0
	_ = rw.finish(err, false) // it returns the same
	return err
}

// serve calls an error route. The response to a denial has the denial's body if the route writes none.
func (f *failure) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if f.body == nil {
		return next.ServeHTTP(w, r)
	}
	b := &bodiless{ResponseWriter: w, status: f.status, body: f.body}
	err := next.ServeHTTP(b, r)
	if err == nil {
		err = b.end()
	}
	return err
}

// mergeHeaders merges the headers of a response in an error route with those from before the error, which come first. It
// leaves an upstream's headers to set, which compares them. If the error route serves the request after all, the
// response gets none of the denial's headers.
func (rw *writer) mergeHeaders(status int) {
	f, h := rw.before, rw.Header()
	served := f.denial != nil && !rw.denied && status != 0 && status < http.StatusBadRequest && status != f.status
	before := f.all()
	kept := before
	if served {
		kept = f.headers
	}
	before.removeFrom(h, &kept)
	if f.denial != nil {
		f.removeAnswer(h, served)
	}
	switch {
	case rw.denied:
		kept.addDenial(&rw.headers)
	case f.denial != nil && !served: // the denial's numbers stay
		kept.add(&headers{draft: rw.headers.draft})
	default:
		kept.add(&rw.headers)
	}
	rw.headers = kept
}

// removeFrom removes the headers from a response's. A family of which an error route has set or deleted a header is left
// as it is, and removed from kept.
func (h *headers) removeFrom(from http.Header, kept *headers) {
	for i, name := range draftNames {
		if !removeValue(from, name, h.draft[i]) {
			kept.draft[i] = ""
		}
	}
	for f, n := range h.families {
		if n == nil {
			continue
		}
		names, ours := &allFamilies[f].names, true
		for i, name := range names {
			ours = ours && first(from[name]) == n.values[i]
		}
		if !ours {
			kept.families[f] = nil
			continue
		}
		for i, name := range names {
			removeValue(from, name, n.values[i])
		}
	}
}

// removeValue removes the first value of a header if it is ours, and reports whether it was.
func removeValue(from http.Header, name, ours string) bool {
	switch v := from[name]; {
	case ours == "":
	case len(v) == 0 || v[0] != ours:
		return false
	case len(v) == 1:
		delete(from, name)
	default:
		from[name] = v[1:]
	}
	return true
}

// removeAnswer removes the denial's other headers if the request is served. Otherwise it removes those in whose place an
// upstream's count: any Cache-Control, and a longer Retry-After.
func (f *failure) removeAnswer(h http.Header, served bool) {
	if ours := f.denial.answer[1]; ours != "" && (served || len(h[headerCacheControl]) > 1) {
		removeValue(h, headerCacheControl, ours)
	}
	retry := [...]struct{ name, ours string }{
		{headerRetryAfter, f.denial.answer[0]}, {headerRetryMilliseconds, f.openAI[0]}, {headerShouldRetry, f.openAI[1]},
	}
	after := h[headerRetryAfter]
	theirs := len(after) > 1 && after[0] == retry[0].ours && isLonger(after[1:], after[0])
	for _, v := range retry {
		switch {
		case served || theirs:
			removeValue(h, v.name, v.ours)
		case v.ours != "" && len(h[v.name]) > 1 && h[v.name][0] == v.ours:
			h[v.name] = h[v.name][:1]
		}
	}
}

// isLonger reports whether one of the values of Retry-After is a longer time than ours.
func isLonger(values []string, ours string) bool {
	own, _ := strconv.ParseInt(ours, 10, 64)
	for _, v := range values {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > own {
			return true
		}
	}
	return false
}
