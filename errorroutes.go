package diana

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
	"github.com/dianalimiter/diana/internal/configure/walk"
	"github.com/dianalimiter/diana/internal/limiter"
)

// errorRoutes are the servers whose routes were provisioned before a handler was, and whether they have error routes in
// subroutes: all of them are gone through once, however many handlers are in named routes.
type errorRoutes map[*caddyhttp.Server]bool

// wrap puts a limiter.ErrorRoute before the error routes of the server, and of the subroutes, that a handler is in.
// It reports whether there are any. A handler of a named route is in those that invoke the route: that may be any.
func (e errorRoutes) wrap(ctx caddy.Context, s *caddyhttp.Server) (found bool, err error) {
	for _, m := range ctx.Modules() {
		if sub, ok := m.(*caddyhttp.Subroute); ok && wrapErrors(sub.Errors, sub.Routes, limiter.ErrorRoute{Inner: true}) {
			found = true
		}
	}
	if s == nil {
		return found, nil
	}
	found = wrapErrors(s.Errors, s.Routes, limiter.ErrorRoute{}) || found
	if slices.ContainsFunc(s.Routes, provisions) {
		return found, nil
	}
	// The server's own routes are provisioned: this is a named route, or an error route.
	caddyfields.WrapErrors(s, func(next caddyhttp.Handler) caddyhttp.Handler { return serverErrors{next} })
	inner, known := e[s]
	if !known {
		if inner, err = wrapSubroutes(ctx, s); err == nil {
			e[s] = inner
		}
	}
	return found || inner, err
}

// wrapSubroutes puts a limiter.ErrorRoute before the error routes of all subroutes of a server, which are provisioned.
func wrapSubroutes(ctx caddy.Context, s *caddyhttp.Server) (found bool, err error) {
	for _, sub := range (&walk.Server{Server: s}).Subroutes() {
		if sub.Errors == nil || len(sub.Errors.Routes) == 0 {
			continue
		}
		if found = true; isWrapped(sub.Errors) {
			continue
		}
		route := wrapping(limiter.ErrorRoute{Inner: true})
		if err := route.ProvisionHandlers(ctx, nil); err != nil {
			return found, err
		}
		sub.Errors.Routes = append(caddyhttp.RouteList{route}, sub.Errors.Routes...)
	}
	return found, nil
}

// wrapErrors puts a handler before error routes, once. It requires that the primary routes are being provisioned:
// later, the error routes are compiled.
func wrapErrors(errors *caddyhttp.HTTPErrorConfig, primary caddyhttp.RouteList, wrapper limiter.ErrorRoute) (has bool) {
	if errors == nil || len(errors.Routes) == 0 {
		return false
	}
	if !isWrapped(errors) && slices.ContainsFunc(primary, provisions) {
		errors.Routes = append(caddyhttp.RouteList{wrapping(wrapper)}, errors.Routes...)
	}
	return true
}

// provisions reports whether a route is yet to be provisioned, or is just being.
func provisions(r caddyhttp.Route) bool { return r.HandlersRaw != nil }

func wrapping(wrapper limiter.ErrorRoute) caddyhttp.Route {
	return caddyhttp.Route{Handlers: []caddyhttp.MiddlewareHandler{wrapper}}
}

func isWrapped(errors *caddyhttp.HTTPErrorConfig) bool {
	first := errors.Routes[0].Handlers
	if len(first) != 1 {
		return false
	}
	_, is := first[0].(limiter.ErrorRoute)
	return is
}

// serverErrors is a limiter.ErrorRoute around the error routes of a server that were compiled already. If one is among
// them, it does nothing.
type serverErrors struct{ next caddyhttp.Handler }

// ServeHTTP implements [caddyhttp.Handler].
func (e serverErrors) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	return limiter.ErrorRoute{}.ServeHTTP(w, r, e.next)
}
