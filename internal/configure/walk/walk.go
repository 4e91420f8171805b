// Package walk visits the rate_limit handlers in the routes of a server, and says which of them a
// request may pass before others.
package walk

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/requestbody"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
	"github.com/dianalimiter/diana/internal/limiter"
)

// maxDepth is how deep routes may be nested in one another where they are looked through.
const maxDepth = 64

// Server is a server with its handlers.
type Server struct {
	*caddyhttp.Server

	// Limiter returns the limiter of a rate_limit handler; nil: h is another handler.
	Limiter func(h caddyhttp.MiddlewareHandler) *limiter.Limiter
}

// errorRoutes returns the error routes.
func (s *Server) errorRoutes() caddyhttp.RouteList {
	if s.Errors == nil {
		return nil
	}
	return s.Errors.Routes
}

// routePath are the routes that lead to a handler, from the outermost on.
type routePath []*caddyhttp.Route

// visit is called with a handler and the routes to it. late says that any handler of the server may run
// before it: it handles errors of a subroute, or responses that intercept was waiting for.
type visit func(h caddyhttp.MiddlewareHandler, to routePath, late bool)

// visitor visits the handlers in routes of a server, in their order.
type visitor struct {
	server *Server
	visit  visit
	late   bool
	rest   []func() // visits the late ones

	subroutes []*caddyhttp.Subroute // that were visited
}

func (v *visitor) routes(list caddyhttp.RouteList, to routePath) {
	for i := range list {
		v.route(&list[i], to)
	}
}

func (v *visitor) route(r *caddyhttp.Route, to routePath) {
	if len(to) == maxDepth || slices.Contains(to, r) { // a named route may invoke itself
		return
	}
	to = append(slices.Clip(to), r)
	for _, h := range r.Handlers {
		switch h := h.(type) {
		case *caddyhttp.Subroute:
			v.subroutes = append(v.subroutes, h)
			v.routes(h.Routes, to)
			if h.Errors != nil {
				v.rest = append(v.rest, func() { v.routes(h.Errors.Routes, to) })
			}
		case *caddyhttp.Invoke:
			if named := v.server.NamedRoutes[h.Name]; named != nil {
				v.route(named, to)
			}
		default:
			v.visit(h, to, v.late)
			v.responses(h, to)
		}
	}
}

// responses visits the handlers in handle_response of a handler, of which a response has one at most.
func (v *visitor) responses(h caddyhttp.MiddlewareHandler, to routePath) {
	list := caddyfields.Responses(h)
	for i := range list {
		within := append(slices.Clip(to), &caddyhttp.Route{Group: fmt.Sprintf("responses of %p", h), MatcherSets: caddyhttp.MatcherSets{{&list[i]}}})
		if Intercepts(h) {
			v.rest = append(v.rest, func() { v.routes(list[i].Routes, within) })
		} else {
			v.routes(list[i].Routes, within)
		}
	}
}

// Intercepts reports whether a handler handles responses of the handlers behind it.
func Intercepts(h caddyhttp.MiddlewareHandler) bool {
	m, ok := h.(caddy.Module)
	return ok && m.CaddyModule().ID == "http.handlers.intercept"
}

// handlers visits the handlers in routes of the server.
func (s *Server) handlers(routes caddyhttp.RouteList, visit visit) {
	v := visitor{server: s, visit: visit}
	v.all(routes)
}

func (v *visitor) all(routes caddyhttp.RouteList) {
	v.routes(routes, nil)
	for v.late = true; len(v.rest) > 0; {
		next := v.rest[0]
		v.rest = v.rest[1:]
		next()
	}
}

// Subroutes returns the subroutes in the routes of the server, perhaps one of them more than once.
func (s *Server) Subroutes() []*caddyhttp.Subroute {
	v := visitor{server: s, visit: func(caddyhttp.MiddlewareHandler, routePath, bool) {}}
	v.all(s.Routes)
	return v.subroutes
}

// limiters visits the limiters in routes of the server.
func (s *Server) limiters(routes caddyhttp.RouteList, visit func(l *limiter.Limiter, to routePath, late bool)) {
	s.handlers(routes, func(h caddyhttp.MiddlewareHandler, to routePath, late bool) {
		if l := s.Limiter(h); l != nil {
			visit(l, to, late)
		}
	})
}

// Repeated returns the names of the zones that the same request would pass twice. It passes none that is
// in shadow.
func (s *Server) Repeated() []string {
	return append(s.repeated(s.Routes), s.repeated(s.errorRoutes())...)
}

func (s *Server) repeated(routes caddyhttp.RouteList) (names []string) {
	type place struct {
		zone string
		late bool
	}
	before := make(map[place][]routePath)
	s.limiters(routes, func(l *limiter.Limiter, to routePath, late bool) {
		for _, z := range l.Zones() {
			if z.Shadow {
				continue
			}
			to := append(slices.Clip(to), &caddyhttp.Route{MatcherSets: z.Matchers()})
			at := place{z.Name, late}
			if !slices.Contains(names, z.Name) && slices.ContainsFunc(before[at], to.follows) {
				names = append(names, z.Name)
			}
			before[at] = append(before[at], to)
		}
	})
	return names
}

// Unencoded returns the names of the zones that read responses before encode could compress
// them, which ask for responses that are not encoded.
func (s *Server) Unencoded() (names []string) {
	outside := make(map[string][]routePath) // of encode, by zone
	s.handlers(s.Routes, func(h caddyhttp.MiddlewareHandler, to routePath, _ bool) {
		if l := s.Limiter(h); l != nil {
			for _, z := range l.Zones() {
				if settle := z.Config.Charge.Settle; settle != nil && settle.ReadsResponse() {
					outside[z.Name] = append(outside[z.Name], to)
				}
			}
		}
		if m, ok := h.(caddy.Module); !ok || m.CaddyModule().ID != "http.handlers.encode" {
			return
		}
		for name, paths := range outside {
			if slices.ContainsFunc(paths, to.follows) {
				names = append(names, name)
			}
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// Intercepted returns the names of the zones that are charged by responses which an intercept before them may replace.
func (s *Server) Intercepted() (names []string) {
	var around []routePath
	s.handlers(s.Routes, func(h caddyhttp.MiddlewareHandler, to routePath, late bool) {
		replaces := func(r caddyhttp.ResponseHandler) bool { return len(r.Routes) > 0 }
		if Intercepts(h) && !late && slices.ContainsFunc(caddyfields.Responses(h), replaces) {
			around = append(around, to)
		}
		if l := s.Limiter(h); l != nil && !late {
			if charged := chargedLater(l); len(charged) > 0 && slices.ContainsFunc(around, to.follows) {
				names = append(names, charged...)
			}
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// chargedLater returns the names of the zones of a limiter that are charged after the response.
func chargedLater(l *limiter.Limiter) (names []string) {
	for _, z := range l.Zones() {
		if z.Config.Charge.AfterResponse() {
			names = append(names, z.Name)
		}
	}
	return names
}

// follows reports whether each request that takes one of two paths takes the other, too. Whether
// some request takes both, such as one with unlike matchers on each, is unknown.
func (p routePath) follows(before routePath) bool {
	p, before = p.apart(before)
	return p.mayFollow(before) && (p.within(before) || before.within(p))
}

// apart returns what two paths do not have in common.
func (p routePath) apart(before routePath) (routePath, routePath) {
	n := 0
	for n < min(len(p), len(before)) && p[n] == before[n] {
		n++
	}
	return p[n:], before[n:]
}

// mayFollow reports whether a request may take two paths that have nothing in common.
func (p routePath) mayFollow(before routePath) bool {
	if slices.ContainsFunc(before, func(r *caddyhttp.Route) bool { return r.Terminal }) {
		return false
	}
	return len(p) == 0 || len(before) == 0 || p[0].Group == "" || p[0].Group != before[0].Group // a request takes one route of a group
}

// visited is a handler in the routes of a server.
type visited struct {
	h    caddyhttp.MiddlewareHandler
	to   routePath
	late bool // whether it is in an error route, or late otherwise: see [visit]
}

// all returns the handlers in all routes of the server, in their order.
func (s *Server) all() (list []visited) {
	failed := false
	visit := func(h caddyhttp.MiddlewareHandler, to routePath, late bool) {
		list = append(list, visited{h, to, failed || late})
	}
	s.handlers(s.Routes, visit)
	failed = true
	s.handlers(s.errorRoutes(), visit)
	return list
}

// NoteMeetings tells the handlers that a request may meet more than one of them. Error routes may
// follow any other.
func (s *Server) NoteMeetings() {
	all := slices.DeleteFunc(s.all(), func(v visited) bool { return s.Limiter(v.h) == nil })
	for i, v := range all {
		for _, before := range all[:i] {
			if p, q := v.to.apart(before.to); v.late || p.mayFollow(q) {
				s.Limiter(v.h).MeetsOthers()
				s.Limiter(before.h).MeetsOthers()
			}
		}
	}
}

// NoteOthers tells the limiters which other handlers of the server concern them.
func (s *Server) NoteOthers() {
	var others limiter.Others
	var limiters []*limiter.Limiter
	for _, v := range s.all() {
		if l := s.Limiter(v.h); l != nil {
			limiters = append(limiters, l)
		} else if b, ok := v.h.(*requestbody.RequestBody); ok && b.MaxSize > 0 {
			others.BodySizes = append(others.BodySizes, b.MaxSize)
		} else if m, ok := v.h.(caddy.Module); ok && m.CaddyModule().ID == "http.handlers.templates" {
			others.Includes = true
		}
	}
	if others.Includes || others.BodySizes != nil {
		for _, l := range limiters {
			l.NoteOthers(&others)
		}
	}
}

// within reports whether the path has no matchers but those of another.
func (p routePath) within(other routePath) bool {
	return !slices.ContainsFunc(p, func(r *caddyhttp.Route) bool {
		return len(r.MatcherSets) > 0 && !slices.ContainsFunc(other, func(o *caddyhttp.Route) bool {
			return reflect.DeepEqual(r.MatcherSets, o.MatcherSets)
		})
	})
}

// Place is where a zone stands in the routes of a server.
type Place struct {
	// Zone is the zone.
	Zone *limiter.Zone

	// Matchers are the matchers of the routes that lead to it.
	Matchers []caddyhttp.MatcherSets

	// Before returns the other handlers that a request may have passed, After those that each of
	// the zone's requests passes later, or that only such requests pass.
	Before, After func() []caddyhttp.MiddlewareHandler
}

// Places returns where the zones stand. Before error routes, any other may have run.
func (s *Server) Places() (list []Place) {
	all := s.all()
	for i, v := range all {
		l := s.Limiter(v.h)
		if l == nil {
			continue
		}
		for _, z := range l.Zones() {
			p := Place{Zone: z}
			for _, r := range v.to {
				p.Matchers = append(p.Matchers, r.MatcherSets)
			}
			to := append(slices.Clip(v.to), &caddyhttp.Route{MatcherSets: z.Matchers()})
			p.Before = func() (before []caddyhttp.MiddlewareHandler) {
				for _, o := range all[:i] {
					if q, earlier := to.apart(o.to); v.late != o.late || q.mayFollow(earlier) {
						before = append(before, o.h)
					}
				}
				return before
			}
			p.After = func() (after []caddyhttp.MiddlewareHandler) {
				for _, o := range all[i+1:] {
					if v.late == o.late && o.to.follows(to) {
						after = append(after, o.h)
					}
				}
				return after
			}
			list = append(list, p)
		}
	}
	return list
}

// ReadsBody reports whether a zone reads the bodies of requests.
func (s *Server) ReadsBody() bool {
	return slices.ContainsFunc(s.all(), func(v visited) bool {
		l := s.Limiter(v.h)
		return l != nil && slices.ContainsFunc(l.Zones(), (*limiter.Zone).ReadsBody)
	})
}
