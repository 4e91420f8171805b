package diana

import (
	"net/netip"
	"reflect"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// StoreWarning implements redis.Observer.
func (a *App) StoreWarning(name, what, advice string) {
	a.logger.Warn(what, zap.String("store", name), zap.String("advice", advice))
}

// adviseProxies warns of servers that let clients choose the address by which
// they are counted. It runs once all servers are provisioned.
func (a *App) adviseProxies() {
	v, err := a.ctx.AppIfConfigured("http")
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
			a.logger.Warn("trusted_proxies covers every address: any client can say which address it has, and escape its limits",
				zap.String("server", name), zap.String("advice", "list only the addresses of your own proxies"))
		case trusted && s.TrustedProxiesStrict <= 0:
			a.logger.Warn("trusted_proxies without trusted_proxies_strict: a client behind a proxy can say which address it has, and escape its limits",
				zap.String("server", name), zap.String("advice", "add trusted_proxies_strict"))
		}
	}
}

// trusts says whether a server believes what others say of clients' addresses,
// and whether it believes everybody. Caddy keeps that in a field of its own, and
// what it was configured by no longer exists when all is provisioned.
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
		// Half of all addresses is as good as all.
		if p, err := netip.ParsePrefix(ranges.Index(i).String()); err == nil && p.Bits() <= 1 {
			all = true
		}
	}
	return true, all
}
