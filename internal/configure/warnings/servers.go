package warnings

import (
	"net/netip"
	"slices"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
	"github.com/dianalimiter/diana/internal/configure/walk"
)

// OfServer warns of a server whose trusted_proxies let clients forge the address by which they are
// counted, of one without a timeout that reads bodies, of routes that lead through a zone twice, and of
// zones that count what a server does not tell them where they stand. It requires that the server is
// provisioned. mapped are the variables that map defines.
func OfServer(warn Warn, name string, s *walk.Server, mapped map[string]bool) {
	trusted, all := trusts(s.Server)
	switch {
	case all && s.TrustedProxiesStrict > 0:
		warn("trusted_proxies covers every address, with trusted_proxies_strict: no address in X-Forwarded-For is a client's, so that all clients of a proxy count as one",
			zap.String("server", name), zap.String("advice", "list only the addresses of your own proxies"))
	case all:
		warn("trusted_proxies covers every address: any client can claim another address and avoid its limits",
			zap.String("server", name), zap.String("advice", "list only the addresses of your own proxies"))
	case trusted && s.TrustedProxiesStrict <= 0:
		warn("trusted_proxies without trusted_proxies_strict: a client behind a proxy can claim another address and avoid its limits",
			zap.String("server", name), zap.String("advice", "add trusted_proxies_strict"))
	}
	warnOfPlaces(warn, name, s, trusted, mapped)
	for _, zone := range s.Unencoded() {
		warn("encode runs after a zone that reads responses: they are not compressed",
			zap.String("zone", zone), zap.String("advice", "write route { encode; rate_limit { ... } }, or the option order rate_limit after encode"))
	}
	for _, zone := range s.Intercepted() {
		warn("intercept stands around a zone that is charged by the response, and may replace it: what clients get then costs nothing",
			zap.String("zone", zone), zap.String("advice", "put rate_limit before intercept, as the default order has it"))
	}
	if s.ReadTimeout <= 0 && s.ReadsBody() {
		warn("a zone reads request bodies, and the server has no read_body timeout: a client that never ends its body holds the request for 10s",
			zap.String("server", name), zap.String("advice", "set timeouts { read_body <duration> } in the option servers; read_body_idle bounds pauses, and not the whole"))
	}
	repeated := s.Repeated()
	slices.Sort(repeated)
	for _, zone := range slices.Compact(repeated) {
		warn("a route has the zone twice: it counts a request once",
			zap.String("zone", zone), zap.String("advice", "write the zone once, or give the second another name"))
	}
}

// trusts reports whether a server has trusted proxies, and whether they cover all addresses.
func trusts(s *caddyhttp.Server) (some, all bool) {
	some, ranges := caddyfields.TrustedProxies(s)
	var list []netip.Prefix
	for _, text := range ranges {
		if p, err := caddyhttp.CIDRExpressionToPrefix(text); err == nil {
			list = append(list, p)
		}
	}
	return some, coversFamily(list, bothFamilies[0]) || coversFamily(list, bothFamilies[1])
}
