package limiter

import (
	"context"
	"net/http"
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// failure is what a request got before an error.
type failure struct {
	headers headers   // of the handlers that admitted it
	denial  *exceeded // by the zone that did not; nil: all did
	status  int       // of the denial
	body    []byte    // of the denial, if the error route writes none; nil: it has none
	openAI  [2]string // retry-after-ms and x-should-retry of the denial
}

// varFailure is the variable of a request with its *failure.
const varFailure = "rate_limit.headers"

// keep keeps what the request got for the handlers of an error route.
func (f *failure) keep(ctx context.Context) { caddyhttp.SetVar(ctx, varFailure, f) }

func failureOf(ctx context.Context) *failure {
	f, _ := caddyhttp.GetVar(ctx, varFailure).(*failure)
	return f
}

// all returns the headers that the response to the error has.
func (f *failure) all() headers {
	h := f.headers
	if f.denial != nil {
		h.add(&f.denial.limits)
	}
	return h
}

// addToKept puts the headers that the request got before its error before these, and removes them
// from those of the response.
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

// ErrorRoute is a handler around the error routes of a server. It sets the headers that a request got
// before its error when the header of the response is written, as any response's headers.
type ErrorRoute struct{}

// CaddyModule returns the Caddy module information. The module is not registered: no configuration
// names it.
func (ErrorRoute) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit_error_route", New: func() caddy.Module { return ErrorRoute{} }}
}

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (ErrorRoute) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	f := failureOf(r.Context())
	if f == nil {
		return next.ServeHTTP(w, r)
	}
	caddyhttp.SetVar(r.Context(), varFailure, nil) // handlers inside have only their own
	rw := newWriter(w, false)
	rw.failure, rw.inErrorRoute = f, true
	if f.body == nil {
		err := next.ServeHTTP(rw, r)
		rw.finish(r, err)
		return err
	}
	b := &bodiless{ResponseWriter: rw, status: f.status, body: f.body}
	err := next.ServeHTTP(b, r)
	if err == nil {
		err = b.end()
	}
	rw.finish(r, err)
	return err
}

// mergeHeaders puts the headers of a response in an error route together: those from before the error
// first. What an upstream has beside them is left for set to compare. If the error route has the
// request served after all, the response has nothing of the denial.
func (rw *writer) mergeHeaders(status int) {
	f, h := rw.failure, rw.Header()
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
	kept.add(&rw.headers)
	rw.headers = kept
}

// removeFrom removes the headers from those of a response. Families of which an error route has set or deleted
// one are left as they are, and removed from kept.
func (h *headers) removeFrom(from http.Header, kept *headers) {
	for i, name := range draftNames {
		if !removeValue(from, name, h.draft[i]) {
			kept.draft[i] = ""
		}
	}
	for f, n := range h.numbers {
		if n == nil {
			continue
		}
		names := &familyNames[f]
		for i, name := range names {
			if first(from[name]) != n.values[i] {
				kept.numbers[f] = nil
			}
		}
		for i := 0; i < len(names) && kept.numbers[f] != nil; i++ {
			removeValue(from, names[i], n.values[i])
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

// removeAnswer removes the other headers of the denial if the request is served, or if those that an
// upstream has set count: a Cache-Control, or a longer time to retry after.
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
