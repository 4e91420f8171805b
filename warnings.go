package diana

import (
	"net/netip"
	"reflect"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/limiter"
)

// warnOfZone warns of options that are valid but rarely intended.
func warnOfZone(logger *zap.Logger, z *limiter.Zone) {
	if z.Shared() && strings.HasPrefix(z.Name, "auto-") {
		logger.Warn("the zone has an automatic name, which other instances share only while their rules are the same: give it one", zap.String("zone", z.Name))
	}
	if z.Config.Plan.Uses("http.auth.") {
		logger.Warn("the key uses what authentication finds out, and rate_limit runs before it by default: order it after, or use route", zap.String("zone", z.Name))
	}
	if z.Config.Plan.Mixes(key.ClientIPPlaceholder) && !z.NoHeaders {
		logger.Warn("a key part mixes the client's address with text, so that prefixes do not apply: make it a part of its own", zap.String("zone", z.Name))
	}
	for _, s := range z.Config.Sets() {
		for i, a := range s.Algorithms {
			if w, ok := a.(*algorithms.SlidingWindow); ok && s.Specs[i].Limit < w.Parts() {
				logger.Warn("a sliding_window with a limit below its buckets: a sliding_log is exact and smaller",
					zap.String("zone", z.Name), zap.String("rule", s.Labels[i]))
			}
		}
	}
}

// warnOfProxies warns of servers whose trusted_proxies let clients forge the address by
// which they are counted. It requires that all servers are provisioned.
func warnOfProxies(ctx caddy.Context, logger *zap.Logger) {
	v, err := ctx.AppIfConfigured("http")
	if err != nil {
		return // no servers
	}
	app, ok := v.(*caddyhttp.App)
	if !ok {
		return
	}
	for name, s := range app.Servers {
		trusted, all := trusts(s)
		switch {
		case all:
			logger.Warn("trusted_proxies covers every address: any client can say which address it has, and escape its limits",
				zap.String("server", name), zap.String("advice", "list only the addresses of your own proxies"))
		case trusted && s.TrustedProxiesStrict <= 0:
			logger.Warn("trusted_proxies without trusted_proxies_strict: a client behind a proxy can say which address it has, and escape its limits",
				zap.String("server", name), zap.String("advice", "add trusted_proxies_strict"))
		}
	}
}

// trusts reports whether a server has trusted proxies, and whether they cover all
// addresses. It reads a private field of Caddy's by reflection: the configuration is
// cleared when the server is provisioned, and there is no public accessor.
func trusts(s *caddyhttp.Server) (some, all bool) {
	source := reflect.ValueOf(s).Elem().FieldByName("trustedProxies")
	if !source.IsValid() || source.Kind() != reflect.Interface || source.IsNil() {
		return false, false
	}
	static := source.Elem()
	if static.Type() != reflect.TypeFor[*caddyhttp.StaticIPRange]() {
		return true, false
	}
	ranges := static.Elem().FieldByName("Ranges")
	for i := range ranges.Len() {
		// Two halves cover all addresses too.
		if p, err := netip.ParsePrefix(ranges.Index(i).String()); err == nil && p.Bits() <= 1 {
			all = true
		}
	}
	return true, all
}
