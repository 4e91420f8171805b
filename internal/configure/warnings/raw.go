package warnings

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
)

// warnOfRawPaths warns of matchers that compare the path as clients spell it, and of variables that map and vars take
// from it: by another spelling, which upstreams serve, a client avoids the zone, or chooses another cost, limit or key.
func (p *place) warnOfRawPaths(warn Warn) {
	for _, name := range readBy(append(slices.Clip(p.Matchers), p.Zone.Matchers())...) {
		if isRaw("{"+name+"}", nil) {
			warn("a matcher of the zone compares the path as clients spell it: /EXPORT, //export and /./export are none of /export",
				zap.String("zone", p.Zone.Name), zap.String("placeholder", "{"+name+"}"), zap.String("advice", "use the matcher path, which knows all spellings"))
		}
	}
	raw := rawVariables(p.Before())
	if len(raw) == 0 {
		return
	}
	for _, name := range placeholdersOf(p.Zone) {
		if raw[name] {
			warn("a variable of the zone depends on the path as clients spell it: /EXPORT, //export and /./export are none of /export",
				zap.String("zone", p.Zone.Name), zap.String("placeholder", "{"+name+"}"),
				zap.String("advice", "set it by matchers, which know all spellings: @export path /export and vars @export cost 20"))
		}
	}
}

// rawVariables returns the placeholders that handlers set from the path as it is spelt.
func rawVariables(handlers []caddyhttp.MiddlewareHandler) map[string]bool {
	raw := make(map[string]bool)
	for _, h := range handlers {
		if vars, ok := h.(*caddyhttp.VarsMiddleware); ok {
			for name, v := range *vars {
				if text, ok := v.(string); ok && isRaw(text, raw) {
					raw["http.vars."+name] = true
				}
			}
		}
		if idOf(h) != "http.handlers.map" {
			continue
		}
		source, destinations := caddyfields.Map(h)
		for _, d := range destinations {
			if isRaw(source, raw) {
				raw[strings.Trim(d, "{}")] = true
			}
		}
	}
	return raw
}

// isRaw reports whether a text has a placeholder of the path, or one of the variables that have it.
func isRaw(text string, variables map[string]bool) bool {
	for _, part := range strings.Split(text, "{")[1:] {
		name, _, _ := strings.Cut(part, "}")
		if variables[name] {
			return true
		}
		for _, of := range [...]string{"http.request.uri", "http.request.orig_uri"} {
			rest, ok := strings.CutPrefix(name, of)
			if ok && (rest == "" || rest == "_escaped" || strings.HasPrefix(rest, ".path")) {
				return true
			}
		}
	}
	return false
}
