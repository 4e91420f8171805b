// Package routes leads a request that is only described through the routes of a server, by
// Caddy's own code. Handlers that change the request run. Those that need more than the request,
// such as authentication, do not.
//
// Nothing here is on the way of a request.
package routes

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
)

// maxDepth is how deep routes may be nested in one another where they are looked through.
const maxDepth = 64

// Way is the way of requests through the routes of a server, for one request at a time.
type Way struct {
	// NotRun are the names of the handlers that the request has met and that were not run.
	NotRun []string

	// MaySet are the headers of the request that these may set, as far as their options were read.
	MaySet []string

	// Unmatched, if not nil, is called for each route whose matchers a request does not match.
	Unmatched func(*caddyhttp.Route, *http.Request)

	// User is the ID of the user that authentication, which is not run, found; empty: none.
	User string

	// Response is the handler whose response decides whether the request gets to where it is led now, by
	// its handle_response; empty: none.
	Response string

	// Failed is the first error of a matcher on the way of the request, which ended it; nil: none.
	Failed error

	server  *caddyhttp.Server
	replace func(caddyhttp.MiddlewareHandler) caddyhttp.MiddlewareHandler
	named   map[string]caddyhttp.Route
	depth   int // of named routes

	primary, errors caddyhttp.Handler
}

// New returns the way through the routes of a server. replace returns what runs in the place of a
// handler, nil for handlers of Caddy and of other plugins.
func New(s *caddyhttp.Server, replace func(caddyhttp.MiddlewareHandler) caddyhttp.MiddlewareHandler) (*Way, error) {
	w := &Way{server: s, replace: replace, named: make(map[string]caddyhttp.Route)}
	for name, r := range s.NamedRoutes {
		list, err := w.list(caddyhttp.RouteList{*r})
		if err != nil {
			return nil, err
		}
		w.named[name] = list[0]
	}
	primary, err := w.list(s.Routes)
	if err != nil {
		return nil, err
	}
	w.primary = primary.Compile(end)
	if s.Errors != nil {
		list, err := w.list(s.Errors.Routes)
		if err != nil {
			return nil, err
		}
		w.errors = list.Compile(end)
	}
	return w, nil
}

var end = caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })

// Ports are the ports of URLs without one, by scheme.
var Ports = map[string]string{"http": "80", "https": "443"}

// Servers returns the names of the servers that listen on a port, or of all servers if none does.
func Servers(servers map[string]*caddyhttp.Server, port string) (names []string) {
	for name, s := range servers {
		if slices.ContainsFunc(s.Listen, func(l string) bool { return strings.HasSuffix(l, ":"+port) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(servers))
	}
	slices.Sort(names)
	return names
}

// list returns a copy of routes with what runs in the place of their handlers.
func (w *Way) list(routes caddyhttp.RouteList) (caddyhttp.RouteList, error) {
	list := make(caddyhttp.RouteList, len(routes))
	for i := range routes {
		r := &list[i]
		r.Group, r.Terminal = routes[i].Group, routes[i].Terminal
		if len(routes[i].MatcherSets) > 0 {
			r.MatcherSets = caddyhttp.MatcherSets{{&matcher{&routes[i], w}}}
		}
		for _, h := range routes[i].Handlers {
			h, err := w.inPlaceOf(h)
			if err != nil {
				return nil, err
			}
			r.Handlers = append(r.Handlers, h)
		}
		if err := r.ProvisionHandlers(caddy.Context{}, nil); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// What Caddy's handlers need to be run. Others are not, and are named.
var (
	// runs are the handlers that need only the request.
	runs = strings.Fields("error headers map request_body rewrite static_response vars")

	// passes are the handlers that change the response, or only observe.
	passes = strings.Fields("encode intercept log_append push templates timeouts tracing")

	// ends are the handlers that answer every request.
	ends = strings.Fields("metrics rate_limit_page rate_limit_quota")
)

// matcher are the matchers of a route, whose errors are noted.
type matcher struct {
	route *caddyhttp.Route
	way   *Way
}

// MatchWithError implements caddyhttp.RequestMatcherWithError.
func (m *matcher) MatchWithError(r *http.Request) (bool, error) {
	match, err := m.route.MatcherSets.AnyMatchWithError(r)
	if err != nil {
		m.way.Fail(err)
	}
	if !match && m.way.Unmatched != nil {
		m.way.Unmatched(m.route, r)
	}
	return match, err
}

// Fail notes the error of a matcher.
func (w *Way) Fail(err error) {
	if w.Failed == nil {
		w.Failed = err
	}
}

// inPlaceOf returns what runs in the place of a handler.
func (w *Way) inPlaceOf(h caddyhttp.MiddlewareHandler) (caddyhttp.MiddlewareHandler, error) {
	if r := w.replace(h); r != nil {
		return r, nil
	}
	switch h := h.(type) {
	case *caddyhttp.Subroute:
		routes, err := w.list(h.Routes)
		sub := &caddyhttp.Subroute{Routes: routes}
		if err == nil && h.Errors != nil {
			sub.Errors = new(caddyhttp.HTTPErrorConfig)
			sub.Errors.Routes, err = w.list(h.Errors.Routes)
		}
		return sub, err
	case *caddyhttp.Invoke:
		return Step(func(rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
			return w.invoke(h.Name, rw, r, next)
		}), nil
	}
	responses, err := w.responses(h)
	if err != nil {
		return nil, err
	}
	switch name := nameOf(h); {
	case slices.Contains(runs, name):
		return h, nil
	case slices.Contains(passes, name):
		return Step(func(rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
			err := next.ServeHTTP(rw, r)
			if err == nil {
				w.respond(name, responses, rw, r)
			}
			return err
		}), nil
	case slices.Contains(ends, name), answers(h, name):
		return Step(func(http.ResponseWriter, *http.Request, caddyhttp.Handler) error { return nil }), nil
	default:
		return Step(func(rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
			w.NotRun = append(w.NotRun, name)
			if n, ok := h.(*notRun); ok {
				w.MaySet = append(w.MaySet, n.sets...)
			}
			w.respond(name, responses, rw, r)
			return next.ServeHTTP(rw, r)
		}), nil
	}
}

// nameOf returns the name of a handler, as in a configuration.
func nameOf(h caddyhttp.MiddlewareHandler) string {
	if m, ok := h.(caddy.Module); ok {
		return m.CaddyModule().ID.Name()
	}
	return fmt.Sprintf("%T", h)
}

// answers reports whether a handler answers every request, by its options.
func answers(h caddyhttp.MiddlewareHandler, name string) bool {
	n, ok := h.(*notRun)
	switch {
	case ok:
		return n.answers
	case name == "reverse_proxy":
		return caddyfields.Responses(h) == nil
	case name == "file_server":
		return !caddyfields.PassesOn(h)
	}
	return false
}

// Step is a handler on the way.
type Step func(http.ResponseWriter, *http.Request, caddyhttp.Handler) error

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (s Step) ServeHTTP(rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return s(rw, r, next)
}

// invoke runs a named route. One that invokes itself ends.
func (w *Way) invoke(name string, rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	route, ok := w.named[name]
	if !ok {
		return fmt.Errorf("invoke: route %q not found", name)
	}
	if w.depth++; w.depth > maxDepth {
		return nil
	}
	defer func() { w.depth-- }()
	return route.Compile(next).ServeHTTP(rw, r)
}

// Lead leads a request through the routes and, after an error, through the error routes.
// clientIP is the address of its client.
func (w *Way) Lead(r *http.Request, clientIP string) (err error) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			err = fmt.Errorf("panic: %v", p) // of another plugin, which needs more than a description
			w.Fail(err)
		}
	}()
	w.NotRun, w.MaySet, w.Failed, w.depth = w.NotRun[:0], w.MaySet[:0], nil, 0
	rw := make(discard)
	repl := caddy.NewReplacer()
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local{w.server, r}))
	r = caddyhttp.PrepareRequest(r, repl, rw, w.server)
	if w.User != "" {
		repl.Set("http.auth.user.id", w.User)
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, clientIP)
	if err = w.enter(r); err == nil {
		err = w.primary.ServeHTTP(rw, r)
	}
	if err == nil || w.errors == nil {
		return err
	}
	if first, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok { // as caddyhttp.Server does
		r.Method, r.RemoteAddr, r.RequestURI = first.Method, first.RemoteAddr, first.RequestURI
		*r.URL = *first.URL
	}
	return w.errors.ServeHTTP(rw, w.server.Errors.WithError(r, err))
}

// discard is the response of a request that is not served.
type discard http.Header

// Header implements http.ResponseWriter.
func (d discard) Header() http.Header { return http.Header(d) }

// Write implements http.ResponseWriter.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (discard) WriteHeader(int) {}
