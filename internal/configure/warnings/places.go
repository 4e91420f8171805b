package warnings

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
	"github.com/dianalimiter/diana/internal/configure/walk"
)

// place is where a zone stands in the routes of a server.
type place struct{ walk.Place }

// warnOfPlaces warns of zones that count what a server does not tell them where they stand. proxied is
// whether the server has trusted_proxies.
func warnOfPlaces(warn Warn, name string, s *walk.Server, proxied bool, mapped map[string]bool) {
	places := s.Places()
	unix := slices.ContainsFunc(s.Listen, func(address string) bool {
		a, err := caddy.ParseNetworkAddress(address)
		return err == nil && a.IsUnixNetwork()
	})
	if unix && !s.TrustedProxiesUnix && slices.ContainsFunc(places, func(p walk.Place) bool { return ByAddress(p.Zone) }) {
		warn("a server listens on a unix socket without trusted_proxies_unix: its clients have no address, and count as one",
			zap.String("server", name), zap.String("advice", "add trusted_proxies_unix, which trusts the X-Forwarded-For of what connects to the socket; trusted_proxies is for addresses"))
	}
	for i := range places {
		p := place{places[i]}
		p.warnOfOrder(warn)
		p.warnOfSkipping(warn, places)
		p.warnOfRawPaths(warn)
		p.warnOfPriority(warn)
		p.warnOfDroppedHeaders(warn, name, s.Server)
		if proxied && slices.ContainsFunc(p.Zone.Config.Plan.Placeholders(), ofConnection) {
			warn("the key is the address of the connection, and the server has trusted_proxies: all clients of a proxy count as one",
				zap.String("zone", p.Zone.Name), zap.String("server", name), zap.String("advice", "use {client_ip}"))
		}
		if p.Zone.PreventDuplicates != nil && slices.ContainsFunc(p.Matchers, onlySafe) {
			warn("the matcher of rate_limit lets only GET, HEAD, OPTIONS and CONNECT pass, which prevent_duplicates ignores",
				zap.String("zone", p.Zone.Name), zap.String("advice", "match the methods that change something, or leave prevent_duplicates out"))
		}
		for _, sets := range p.Matchers {
			OfMatchers(warn, sets, mapped, zap.String("zone", p.Zone.Name))
		}
	}
}

// warnOfOrder warns of what a later handler fills.
func (p *place) warnOfOrder(warn Warn) {
	z := p.Zone
	for _, read := range []struct {
		option string
		names  []string
	}{
		{"key", z.Config.Plan.Placeholders()},
		{"rule", z.Config.LimitPlaceholders()},
		{"cost", z.Config.Charge.CostPlaceholders()},
		{"match", readBy(append(slices.Clip(p.Matchers), z.Matchers())...)},
		{"exempt", readBy(z.Exempt())},
		{"priority", z.Config.Priority.Placeholders()},
	} {
		for _, name := range read.names {
			fields := []zap.Field{zap.String("zone", z.Name), zap.String("option", read.option), zap.String("placeholder", "{"+name+"}")}
			switch {
			case p.early(name):
				warn("the zone depends on authentication, which runs after rate_limit by default: order rate_limit after it, or use route", fields...)
			case p.setLater(name, func(h caddyhttp.MiddlewareHandler) bool { return responses(h) == nil }):
				warn("the zone reads what is set after rate_limit: a header is what clients send there, and a variable is empty",
					append(fields, zap.String("advice", "order rate_limit after it, or use route"))...)
			}
		}
	}
}

// early reports whether a placeholder is filled by authentication, and not yet where the zone
// stands. forward_auth is a reverse_proxy with handle_response.
func (p *place) early(name string) bool {
	switch {
	case strings.HasPrefix(name, "http.auth."):
		return !slices.ContainsFunc(p.Before(), authenticates)
	case strings.HasPrefix(name, "http.reverse_proxy."):
		return !slices.ContainsFunc(p.Before(), func(h caddyhttp.MiddlewareHandler) bool { return responses(h) != nil || foreign(h) })
	}
	return p.setLater(name, func(h caddyhttp.MiddlewareHandler) bool { return responses(h) != nil })
}

// setLater reports whether a placeholder is a header or a variable that a handler of a kind sets
// after the zone, and none before.
func (p *place) setLater(name string, kind func(caddyhttp.MiddlewareHandler) bool) bool {
	sets := func(h caddyhttp.MiddlewareHandler) bool { return setsPlaceholder(h, name) }
	return slices.ContainsFunc(p.After(), func(h caddyhttp.MiddlewareHandler) bool { return kind(h) && sets(h) }) && !slices.ContainsFunc(p.Before(), sets)
}

// setsPlaceholder reports whether a handler sets a header of the request, or a variable.
func setsPlaceholder(h caddyhttp.MiddlewareHandler, name string) bool {
	if header, ok := strings.CutPrefix(name, requestHeader); ok {
		return setsHeader(h, header)
	}
	if vars, ok := h.(*caddyhttp.VarsMiddleware); ok {
		_, sets := (*vars)[strings.TrimPrefix(name, "http.vars.")]
		return sets && strings.HasPrefix(name, "http.vars.")
	}
	if idOf(h) != "http.handlers.map" {
		return false
	}
	_, destinations := caddyfields.Map(h)
	return slices.ContainsFunc(destinations, func(d string) bool { return strings.Trim(d, "{}") == name })
}

// authenticates reports whether a handler may authenticate. Those of other modules may.
func authenticates(h caddyhttp.MiddlewareHandler) bool {
	return idOf(h) == "http.handlers.authentication" || foreign(h)
}

func foreign(h caddyhttp.MiddlewareHandler) bool {
	if strings.HasPrefix(string(idOf(h)), "http.handlers.rate_limit") {
		return false
	}
	t := reflect.TypeOf(h)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return !strings.HasPrefix(t.PkgPath(), "github.com/caddyserver/caddy/v2/")
}

func idOf(h caddyhttp.MiddlewareHandler) caddy.ModuleID {
	if m, ok := h.(caddy.Module); ok {
		return m.CaddyModule().ID
	}
	return ""
}

// responses returns the handle_response of a reverse_proxy, which forward_auth has; nil: h is another
// handler.
func responses(h caddyhttp.MiddlewareHandler) []caddyhttp.ResponseHandler {
	if walk.Intercepts(h) {
		return nil
	}
	return caddyfields.Responses(h)
}

// setsHeader reports whether a handler sets a header of the request for those after it, in
// handle_response too: so forward_auth copies headers.
func setsHeader(h caddyhttp.MiddlewareHandler, header string) bool {
	switch h := h.(type) {
	case *headers.Handler:
		return h.Request != nil && (has(h.Request.Set, header) || has(h.Request.Add, header))
	case headers.Handler:
		return setsHeader(&h, header)
	case *caddyhttp.Subroute:
		return routesSet(h.Routes, header)
	}
	return slices.ContainsFunc(responses(h), func(r caddyhttp.ResponseHandler) bool { return routesSet(r.Routes, header) })
}

func routesSet(list caddyhttp.RouteList, header string) bool {
	return slices.ContainsFunc(list, func(r caddyhttp.Route) bool {
		return slices.ContainsFunc(r.Handlers, func(h caddyhttp.MiddlewareHandler) bool { return setsHeader(h, header) })
	})
}

func has(h http.Header, name string) bool {
	for field := range h {
		if strings.EqualFold(field, name) {
			return true
		}
	}
	return false
}

// warnOfDroppedHeaders warns of headers that Caddy drops before any handler sees them.
func (p *place) warnOfDroppedHeaders(warn Warn, server string, s *caddyhttp.Server) {
	for _, header := range headersOf(p.Zone, p.Matchers...) {
		if !caddyfields.DropsHeader(s, header) || slices.ContainsFunc(p.Before(), func(h caddyhttp.MiddlewareHandler) bool { return setsHeader(h, header) || foreign(h) }) {
			continue
		}
		advice := "use a header with - in its name, or list it in expected_underscore_headers or expected_dot_headers of the server, in JSON"
		if !strings.ContainsAny(header, "_.") {
			advice = "use the spelling that the server expects, in expected_underscore_headers or expected_dot_headers"
		}
		warn("Caddy drops a header of the zone, because of _ or . in its name: it is always empty",
			zap.String("zone", p.Zone.Name), zap.String("placeholder", "{"+requestHeader+header+"}"), zap.String("server", server), zap.String("advice", advice))
	}
}
