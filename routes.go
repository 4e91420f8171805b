package diana

import (
	"reflect"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/warnings"
)

// maxDepth is how deep routes may be nested in one another where they are looked through.
const maxDepth = 64

// routePath are the routes that lead to a handler, from the outermost on.
type routePath []*caddyhttp.Route

// walker visits the handlers in routes of a server, in their order.
type walker struct {
	server *caddyhttp.Server
	visit  func(h *Handler, to routePath)                    // of rate_limit
	others func(h caddyhttp.MiddlewareHandler, to routePath) // nil: not visited
}

func (w *walker) routes(list caddyhttp.RouteList, to routePath) {
	for i := range list {
		w.route(&list[i], to)
	}
}

func (w *walker) route(r *caddyhttp.Route, to routePath) {
	if len(to) == maxDepth || slices.Contains(to, r) { // a named route may invoke itself
		return
	}
	to = append(slices.Clip(to), r)
	for _, h := range r.Handlers {
		switch h := h.(type) {
		case *Handler:
			w.visit(h, to)
		case *caddyhttp.Subroute:
			w.routes(h.Routes, to)
		case *caddyhttp.Invoke:
			if named := w.server.NamedRoutes[h.Name]; named != nil {
				w.route(named, to)
			}
		default:
			if w.others != nil {
				w.others(h, to)
			}
		}
	}
}

// wrapErrorRoutes puts a limiter.ErrorRoute before the error routes of a server, once. It requires that
// the server is provisioning its routes: later, the error routes are compiled.
func wrapErrorRoutes(s *caddyhttp.Server) {
	first := s.Errors.Routes[0].Handlers
	wrapped := len(first) == 1 && first[0] == caddyhttp.MiddlewareHandler(limiter.ErrorRoute{})
	if provisions := func(r caddyhttp.Route) bool { return r.HandlersRaw != nil }; wrapped || !slices.ContainsFunc(s.Routes, provisions) {
		return
	}
	wrapper := caddyhttp.Route{Handlers: []caddyhttp.MiddlewareHandler{limiter.ErrorRoute{}}}
	s.Errors.Routes = append(caddyhttp.RouteList{wrapper}, s.Errors.Routes...)
}

// repeatedZones returns the names of the zones that the same request would pass twice in routes
// of a server. It passes none that is in shadow.
func repeatedZones(s *caddyhttp.Server, routes caddyhttp.RouteList) (names []string) {
	before := make(map[string][]routePath) // by zone
	w := walker{server: s, visit: func(h *Handler, to routePath) {
		for _, z := range h.limiter.Zones() {
			if z.Shadow {
				continue
			}
			to := append(slices.Clip(to), &caddyhttp.Route{MatcherSets: z.Matchers()})
			if !slices.Contains(names, z.Name) && slices.ContainsFunc(before[z.Name], to.follows) {
				names = append(names, z.Name)
			}
			before[z.Name] = append(before[z.Name], to)
		}
	}}
	w.routes(routes, nil)
	return names
}

// unencodedZones returns the names of the zones that read responses before encode could compress
// them, which ask for responses that are not encoded.
func unencodedZones(s *caddyhttp.Server, routes caddyhttp.RouteList) (names []string) {
	outside := make(map[string][]routePath) // of encode, by zone
	w := walker{server: s}
	w.visit = func(h *Handler, to routePath) {
		for _, z := range h.limiter.Zones() {
			if settle := z.Config.Charge.Settle; settle != nil && settle.Paths != nil {
				outside[z.Name] = append(outside[z.Name], to)
			}
		}
	}
	w.others = func(h caddyhttp.MiddlewareHandler, to routePath) {
		if m, ok := h.(caddy.Module); !ok || m.CaddyModule().ID != "http.handlers.encode" {
			return
		}
		for name, paths := range outside {
			if slices.ContainsFunc(paths, to.follows) {
				names = append(names, name)
			}
		}
	}
	w.routes(routes, nil)
	slices.Sort(names)
	return slices.Compact(names)
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

// noteMeetings tells the handlers of a server that a request may meet more than one of them.
// Error routes may follow any other.
func noteMeetings(s *caddyhttp.Server, errorRoutes caddyhttp.RouteList) {
	type visited struct {
		h  *Handler
		to routePath
	}
	var all []visited
	failed := false // whether error routes are visited
	w := walker{server: s, visit: func(h *Handler, to routePath) {
		for _, before := range all {
			if p, q := to.apart(before.to); failed || p.mayFollow(q) {
				h.limiter.MeetsOthers()
				before.h.limiter.MeetsOthers()
			}
		}
		all = append(all, visited{h, to})
	}}
	w.routes(s.Routes, nil)
	failed = true
	w.routes(errorRoutes, nil)
}

// within reports whether the path has no matchers but those of another.
func (p routePath) within(other routePath) bool {
	return !slices.ContainsFunc(p, func(r *caddyhttp.Route) bool {
		return len(r.MatcherSets) > 0 && !slices.ContainsFunc(other, func(o *caddyhttp.Route) bool {
			return reflect.DeepEqual(r.MatcherSets, o.MatcherSets)
		})
	})
}

// places returns where the zones of a server stand. Before error routes, any other may have run.
func places(s *caddyhttp.Server, errorRoutes caddyhttp.RouteList) (list []warnings.Place) {
	type visited struct {
		h     caddyhttp.MiddlewareHandler
		to    routePath
		error bool // whether it is in an error route
	}
	var all []visited
	failed := false // whether error routes are visited
	add := func(h caddyhttp.MiddlewareHandler, to routePath) { all = append(all, visited{h, to, failed}) }
	w := walker{server: s, visit: func(h *Handler, to routePath) { add(h, to) }, others: add}
	w.routes(s.Routes, nil)
	failed = true
	w.routes(errorRoutes, nil)
	for i, v := range all {
		l := limiterOf(v.h)
		if l == nil {
			continue
		}
		for _, z := range l.Zones() {
			p := warnings.Place{Zone: z}
			for _, r := range v.to {
				p.Matchers = append(p.Matchers, r.MatcherSets)
			}
			to := append(slices.Clip(v.to), &caddyhttp.Route{MatcherSets: z.Matchers()})
			p.Before = func() (before []caddyhttp.MiddlewareHandler) {
				for _, o := range all[:i] {
					if q, earlier := to.apart(o.to); v.error != o.error || q.mayFollow(earlier) {
						before = append(before, o.h)
					}
				}
				return before
			}
			p.After = func() (after []caddyhttp.MiddlewareHandler) {
				for _, o := range all[i+1:] {
					if v.error == o.error && o.to.follows(to) {
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
