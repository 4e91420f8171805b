package limiter

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/key"
)

// forwarding are the headers with a client's address that proxies most often send.
var forwarding = []string{
	"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Cf-Connecting-Ip", "True-Client-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "X-Client-Ip", "X-Azure-Clientip",
	"X-Cluster-Client-Ip",
}

// warnOfProxy logs, once for a configuration and for a zone, that a denied request has a header with
// the address of another client, and comes from a peer that is not trusted: all clients of a proxy
// count as one then. It looks at the first denial of a zone and then at every 64th, because a look at
// ten headers costs a tenth of a denial.
func (q *request) warnOfProxy(z *Zone) {
	const every = 64
	if z.common.proxyLooks.Add(1)%every != 1 || q.l.env.proxyLog.Load() || z.common.proxyLog.Load() || !slices.Contains(z.Config.Plan.Placeholders(), key.ClientIPPlaceholder) {
		return
	}
	if trusted, _ := caddyhttp.GetVar(q.r.Context(), caddyhttp.TrustedProxyVarKey).(bool); trusted {
		q.warnOfTrustedClients(z)
		return
	}
	for _, header := range forwarding {
		if len(q.r.Header[header]) == 0 || z.common.proxyLog.Swap(true) || q.l.env.proxyLog.Swap(true) {
			continue
		}
		q.l.o.Logger.Warn("a peer that is not in trusted_proxies sends a header with a client's address: if it is a proxy, all of its clients count as one",
			zap.String("zone", z.WrittenName()), zap.String("remote_ip", remoteIP(q.r.RemoteAddr)), zap.String("header", header),
			zap.String("advice", "if it is your proxy, add its address to trusted_proxies, or trusted_proxies_unix for a unix socket; if it is a client, nothing needs to be done"))
		return
	}
}

// warnOfTrustedClients logs, once as warnOfProxy does, that a trusted proxy passes on the requests of
// clients whose addresses are in trusted_proxies too: with trusted_proxies_strict they all have the
// address of the proxy.
func (q *request) warnOfTrustedClients(z *Zone) {
	server, ok := q.r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	remote := remoteIP(q.r.RemoteAddr)
	if !ok || server.TrustedProxiesStrict <= 0 || key.ClientIP(q.r) != remote || !slices.ContainsFunc(q.r.Header["X-Forwarded-For"], hasOther(remote)) {
		return
	}
	if z.common.proxyLog.Swap(true) || q.l.env.proxyLog.Swap(true) {
		return
	}
	q.l.o.Logger.Warn("the address of a client is in trusted_proxies, as that of its proxy: with trusted_proxies_strict all such clients count as one",
		zap.String("zone", z.WrittenName()), zap.String("remote_ip", remote),
		zap.String("advice", "list only the addresses of your proxies in trusted_proxies, and no network of clients, such as private_ranges"))
}

// hasOther returns whether a list of addresses in a header has one that is not that of the proxy.
func hasOther(remote string) func(list string) bool {
	return func(list string) bool {
		for text := range strings.SplitSeq(list, ",") {
			if addr, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil && addr.String() != remote {
				return true
			}
		}
		return false
	}
}
