package diana

import (
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/placeholders"
	"github.com/dianalimiter/diana/internal/warnings"
)

// warnOfZone warns of options that are valid but rarely intended.
func warnOfZone(logger *zap.Logger, z *limiter.Zone) {
	if z.Shared() && strings.HasPrefix(z.Name, "auto-") {
		logger.Warn("the zone has no name: instances share it only while their sites, or in JSON their servers, and rules are the same; give it a name", zap.String("zone", z.Name))
	}
	if z.Config.Plan.Mixes(key.ClientIPPlaceholder) && !z.NoHeaders {
		logger.Warn("a key part combines the client's address with text, so ipv4_prefix and ipv6_prefix do not apply: make the address a part of its own", zap.String("zone", z.Name))
	}
	if p := z.Config.Plan; p.Repeated == key.RepeatedJoin && p.MayRepeat() && len(z.Config.Overrides) > 0 {
		logger.Warn("key_repeated join in a zone with overrides: a client avoids its override by repeating a value of its key",
			zap.String("zone", z.Name), zap.String("advice", "use key_repeated deny, or first"))
	}
	z.NarrowKeys().Warn(logger)
	if z.Config.Plan.Constant() && slices.ContainsFunc(z.Config.Sets(), func(s *config.RuleSet) bool { return s.Blocks != nil }) {
		logger.Warn("a rule with block in a zone with a constant key: one client that exceeds it blocks all clients",
			zap.String("zone", z.Name), zap.String("advice", "count clients on their own, such as by key {client_ip}"))
	}
	for _, s := range z.Config.Sets() {
		for i, a := range s.Algorithms {
			if i < len(s.LimitFrom) && s.LimitFrom[i] != nil {
				warnOfLimitFrom(logger, z.Name, s.Labels[i], s.LimitFrom[i])
			}
			if _, ok := a.(*algorithms.Calendar); ok && !z.Shared() {
				logger.Warn("a calendar in a zone with store local: a restart resets it",
					zap.String("zone", z.Name), zap.String("rule", s.Labels[i]), zap.String("advice", "use a store"))
			}
			if w, ok := a.(*algorithms.SlidingWindow); ok && s.Specs[i].Limit < w.Parts() {
				logger.Warn("a sliding_window with a limit below its buckets: a sliding_log is exact and smaller",
					zap.String("zone", z.Name), zap.String("rule", s.Labels[i]))
			}
		}
	}
}

// warnOfEnvironment warns of a placeholder for a variable that the environment does not have.
func (a *App) warnOfEnvironment(logger *zap.Logger, zone, placeholder string) {
	if name, ok := strings.CutPrefix(placeholder, "env."); ok {
		if _, set := os.LookupEnv(name); !set {
			a.warn(logger, "the environment variable of a placeholder of the zone is not set: the placeholder is empty", zap.String("zone", zone), zap.String("placeholder", "{"+placeholder+"}"))
		}
	}
}

// warnOfPlaceholders warns of placeholders of the zone that are always empty, and of those
// in its key that clients can spell in many ways.
func (a *App) warnOfPlaceholders(ctx caddy.Context, logger *zap.Logger, z *limiter.Zone) {
	inKey := z.Config.Plan.Placeholders()
	for _, name := range slices.Concat(inKey, z.Config.Charge.Placeholders(), z.Config.LimitPlaceholders()) {
		a.warnOfEnvironment(logger, z.Name, name)
		if !placeholders.Provided(name) && !a.mappedIn(ctx)[name] {
			msg := "no module in this build provides a placeholder of the zone: it is always empty"
			if !strings.Contains(name, ".") {
				msg = "unknown shorthand in the zone: it is always empty unless map defines it"
			}
			a.warn(logger, msg, zap.String("zone", z.Name), zap.String("placeholder", "{"+name+"}"), zap.String("advice", placeholders.Advice(name)))
		}
	}
	for _, name := range inKey {
		if advice := verbatim[name]; advice != "" {
			a.warn(logger, "a placeholder of the key is not normalized: each spelling is counted on its own",
				zap.String("zone", z.Name), zap.String("placeholder", "{"+name+"}"), zap.String("advice", advice))
		}
	}
}

// warnOfLimitFrom warns of limits that clients can choose.
func warnOfLimitFrom(logger *zap.Logger, zone, rule string, from *config.LimitFrom) {
	if slices.ContainsFunc(warnings.FromClients, from.Uses) {
		logger.Warn("the limit comes from a header, query or cookie, which clients can set: it must be set in every request before rate_limit, such as by forward_auth",
			zap.String("zone", zone), zap.String("rule", rule))
	}
}

// verbatim are placeholders that count as clients spell them, with what to use in their
// place.
var verbatim = func() map[string]string {
	const (
		path  = "use {path}, which counts all spellings of a path as one"
		query = "use {query.<name>} for the parameters that matter"
		port  = "use {host}: clients write any port"
	)
	m := make(map[string]string)
	for _, prefix := range []string{"http.request.uri", "http.request.orig_uri"} {
		m[prefix], m[prefix+"_escaped"], m[prefix+".path_escaped"], m[prefix+".path.file_escaped"] = path, path, path, path
		m[prefix+".query"], m[prefix+".query_escaped"], m[prefix+".prefixed_query"] = query, query, query
	}
	m["http.request.hostport"], m["http.request.port"] = port, port
	return m
}()

// warnOfServers warns of servers whose trusted_proxies let clients forge the address by
// which they are counted, of those without a timeout that read bodies, and of routes that lead
// through a zone twice. It requires that all servers are provisioned.
func (a *App) warnOfServers() {
	servers, _ := a.servers() // none without the http app
	var repeated []string
	for name, s := range servers {
		trusted, all := trusts(s)
		switch {
		case all:
			a.logger.Warn("trusted_proxies covers every address: any client can claim another address and avoid its limits",
				zap.String("server", name), zap.String("advice", "list only the addresses of your own proxies"))
		case trusted && s.TrustedProxiesStrict <= 0:
			a.logger.Warn("trusted_proxies without trusted_proxies_strict: a client behind a proxy can claim another address and avoid its limits",
				zap.String("server", name), zap.String("advice", "add trusted_proxies_strict"))
		}
		var errorRoutes caddyhttp.RouteList
		if s.Errors != nil {
			errorRoutes = s.Errors.Routes
		}
		noteMeetings(s, errorRoutes)
		warnings.OfServer(a.warnTo(a.logger), name, s, trusted, places(s, errorRoutes), a.mapped)
		repeated = append(repeated, repeatedZones(s, s.Routes)...)
		repeated = append(repeated, repeatedZones(s, errorRoutes)...)
		for _, zone := range unencodedZones(s, s.Routes) {
			a.logger.Warn("encode runs after a zone that reads responses: they are not compressed",
				zap.String("zone", zone), zap.String("advice", "write route { encode; rate_limit { ... } }, or the option order rate_limit after encode"))
		}
		if s.ReadTimeout <= 0 && (readsBody(s, s.Routes) || readsBody(s, errorRoutes)) {
			a.logger.Warn("a zone reads request bodies, and the server has no read_body timeout: a client that never ends its body holds the request for 10s",
				zap.String("server", name), zap.String("advice", "set timeouts { read_body <duration> } in the option servers; read_body_idle bounds pauses, and not the whole"))
		}
	}
	slices.Sort(repeated)
	for _, zone := range slices.Compact(repeated) {
		a.logger.Warn("a route has the zone twice: it counts a request once",
			zap.String("zone", zone), zap.String("advice", "write the zone once, or give the second another name"))
	}
}

// readsBody reports whether a zone in routes of a server reads the bodies of requests.
func readsBody(s *caddyhttp.Server, routes caddyhttp.RouteList) (reads bool) {
	w := walker{server: s, visit: func(h *Handler, _ routePath) {
		reads = reads || slices.ContainsFunc(h.limiter.Zones(), (*limiter.Zone).ReadsBody)
	}}
	w.routes(routes, nil)
	return reads
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
