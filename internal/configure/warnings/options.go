package warnings

import (
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/placeholders"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/limiter"
)

// shortened reports whether an option is a part of an address that has so many bits.
func shortened(prefix *int, bits int) bool { return prefix != nil && *prefix < bits }

// week is a week in microseconds.
const week = 7 * 24 * 3600 * 1_000_000

// warnOfOptions warns of options that are valid but rarely intended.
func warnOfOptions(warn Warn, z *limiter.Zone) {
	if z.Shared() && strings.HasPrefix(z.Name, "auto-") {
		warn("the zone has no name: instances share it only while their sites, or in JSON their servers, matchers and keys are the same; give it a name", zap.String("zone", z.Name))
	}
	if z.Config.Plan.Mixes(key.ClientIPPlaceholder) && (!z.NoHeaders || shortened(z.IPv4Prefix, 32) || shortened(z.IPv6Prefix, 128)) {
		warn("a key part combines the client's address with text, so ipv4_prefix and ipv6_prefix do not apply: make the address a part of its own", zap.String("zone", z.Name))
	}
	if p := z.Config.Plan; p.Repeated == key.RepeatedJoin && p.MayRepeat() && len(z.Config.Overrides) > 0 {
		warn("key_repeated join in a zone with overrides: a client avoids its override by repeating a value of its key",
			zap.String("zone", z.Name), zap.String("advice", "use key_repeated deny, or first"))
	}
	z.NarrowKeys().Warn(warn)
	warnOfAdaptive(warn, z)
	if z.Config.Plan.Constant() && slices.ContainsFunc(z.Config.Sets(), func(s *config.RuleSet) bool { return s.Blocks != nil }) {
		warn("a rule with block in a zone with a constant key: one client that exceeds it blocks all clients",
			zap.String("zone", z.Name), zap.String("advice", "count clients on their own, such as by key {client_ip}"))
	}
	for _, s := range z.Config.Sets() {
		for i, a := range s.Algorithms {
			if i < len(s.LimitFrom) && s.LimitFrom[i] != nil {
				warnOfLimitFrom(warn, z.Name, s.Labels[i], s.LimitFrom[i])
			}
			if _, ok := a.(*algorithms.Calendar); ok && !z.Shared() {
				warn("a calendar in a zone with store local: a restart resets it",
					zap.String("zone", z.Name), zap.String("rule", s.Labels[i]), zap.String("advice", "use a store"))
			}
			if w, ok := a.(*algorithms.FixedWindow); ok && w.Align && s.Specs[i].Window%week == 0 {
				warn("fixed_window align begins its weeks on Thursday at 0:00 UTC, as 1970 did",
					zap.String("zone", z.Name), zap.String("rule", s.Labels[i]), zap.String("advice", "use calendar, as in 100/week calendar, whose weeks begin on Monday"))
			}
			if w, ok := a.(*algorithms.SlidingWindow); ok && s.Specs[i].Limit < w.Parts() {
				warn("a sliding_window with a limit below its buckets: a sliding_log is exact and smaller",
					zap.String("zone", z.Name), zap.String("rule", s.Labels[i]))
			}
		}
	}
}

// warnOfEnvironment warns of a placeholder for a variable that the environment does not have.
func warnOfEnvironment(warn Warn, zone, placeholder string) {
	if name, ok := strings.CutPrefix(placeholder, "env."); ok {
		if _, set := os.LookupEnv(name); !set {
			warn("the environment variable of a placeholder of the zone is not set: the placeholder is empty", zap.String("zone", zone), zap.String("placeholder", "{"+placeholder+"}"))
		}
	}
}

// warnOfPlaceholders warns of placeholders of the zone that are always empty, and of those
// in its key that clients can spell in many ways.
func warnOfPlaceholders(warn Warn, z *limiter.Zone, mapped map[string]bool) {
	inKey := z.Config.Plan.Placeholders()
	for _, name := range placeholdersOf(z) {
		warnOfEnvironment(warn, z.Name, name)
		if !placeholders.Provided(name) && !mapped[name] {
			msg := "no module in this build provides a placeholder of the zone: it is always empty"
			if !strings.Contains(name, ".") {
				msg = "unknown shorthand in the zone: it is always empty unless map defines it"
			}
			warn(msg, zap.String("zone", z.Name), zap.String("placeholder", "{"+name+"}"), zap.String("advice", placeholders.Advice(name)))
		}
	}
	for _, name := range inKey {
		if advice := verbatim[name]; advice != "" {
			warn("a placeholder of the key is not normalized: each spelling is counted on its own",
				zap.String("zone", z.Name), zap.String("placeholder", "{"+name+"}"), zap.String("advice", advice))
		}
	}
}

// warnOfLimitFrom warns of limits that clients can choose.
func warnOfLimitFrom(warn Warn, zone, rule string, from *config.LimitFrom) {
	if slices.ContainsFunc(FromClients, from.Uses) {
		warn("the limit comes from a header, query or cookie, which clients can set: it must be set in every request before rate_limit, such as by forward_auth",
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
