package warnings

import (
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/limiter"
)

// warnOfNoLimit warns of options that leave a zone nothing, or nobody, to limit.
func warnOfNoLimit(tell Warn, zone zap.Field, z *limiter.Zone) {
	warn := func(msg, advice string) { tell(msg, zone, zap.String("advice", advice)) }
	switch match := z.Matchers(); {
	case len(match) > 0 && !slices.ContainsFunc(match, mayMatch):
		warn("the zone's matchers match no request", "begin each path with / or *")
	case len(match) == 0 || slices.ContainsFunc(match, matchesUnsafe):
	case z.PreventDuplicates != nil:
		warn("the zone matches only GET, HEAD, OPTIONS and CONNECT, which prevent_duplicates ignores", "match the methods that change something, or leave prevent_duplicates out")
	case z.Tokens != nil:
		warn("the zone matches only GET, HEAD, OPTIONS and CONNECT, which cost no tokens", "match POST")
	}
	if alternatives(z.Matchers()) {
		warn("one of several match lines is enough for a request to be limited, and they match different things", "if all of them are meant, write them in one block: match { … }")
	}
	if slices.ContainsFunc(z.Exempt(), matchesAll) || coversAll(z.Exempt()) {
		warn("exempt matches every request: the zone limits nothing", "exempt only certain networks or paths")
	}
	for _, o := range z.Config.Overrides {
		if !o.Unlimited {
			continue
		}
		for p, err := range o.Patterns() {
			if err == nil && p.Any() {
				warn("an override makes every key unlimited: the zone limits only the keys of other overrides", "name the keys, or leave the override out")
			}
		}
	}
	charges := z.Cost != "" || z.Settles() || len(z.CountStatus) > 0
	if charges && !slices.ContainsFunc(z.Config.Sets(), hasRules) {
		warn("cost, settle, tokens and count_status charge rules, and the zone has none", "add a rule")
	}
	if z.Config.Charge.Settle != nil && slices.ContainsFunc(z.Config.Charge.Settle.Placeholders(), chosenByClients) {
		warn("settle uses a value of the request, which clients can set", "settle by the response, such as {http.response.header.X-Cost}")
	}
}

// mayMatch reports whether a set of matchers may match some request.
func mayMatch(set caddyhttp.MatcherSet) bool {
	return !slices.ContainsFunc(set, func(m any) bool {
		paths, ok := m.(*caddyhttp.MatchPath)
		return ok && !slices.ContainsFunc(*paths, func(p string) bool { return strings.HasPrefix(p, "/") || strings.HasPrefix(p, "*") })
	})
}

// matchesUnsafe reports whether a set of matchers may match a request of an unsafe method.
func matchesUnsafe(set caddyhttp.MatcherSet) bool {
	return !slices.ContainsFunc(set, func(m any) bool {
		methods, ok := m.(*caddyhttp.MatchMethod)
		return ok && !slices.ContainsFunc(*methods, config.Unsafe)
	})
}

// onlySafe reports whether the matchers of a route let no request of an unsafe method pass.
func onlySafe(sets caddyhttp.MatcherSets) bool {
	return len(sets) > 0 && !slices.ContainsFunc(sets, matchesUnsafe)
}

// alternatives reports whether two sets of matchers have no kind of matcher in common, as path and method,
// which are rarely alternatives. The two ways to begin a WebSocket are: a header Upgrade, and the method CONNECT.
func alternatives(sets caddyhttp.MatcherSets) bool {
	for i, a := range sets {
		for _, b := range sets[:i] {
			if len(a) > 0 && len(b) > 0 && !slices.ContainsFunc(a, func(m any) bool {
				return upgrades(m) || slices.ContainsFunc(b, func(o any) bool { return upgrades(o) || sameKind(m, o) })
			}) {
				return true
			}
		}
	}
	return false
}

// sameKind reports whether two matchers are of one kind, or either is one that may say anything.
func sameKind(a, b any) bool {
	kinds := []string{reflect.TypeOf(a).String(), reflect.TypeOf(b).String()}
	for i, kind := range kinds {
		switch kind = strings.TrimSuffix(kind, "RE"); kind {
		case "*caddyhttp.MatchExpression", "caddyhttp.MatchExpression", "*caddyhttp.MatchNot":
			return true
		default:
			kinds[i] = kind
		}
	}
	return kinds[0] == kinds[1]
}

func upgrades(m any) bool {
	h, ok := m.(*caddyhttp.MatchHeader)
	return ok && has(http.Header(*h), "Upgrade")
}

// matchesAll reports whether a set of matchers matches every request, whatever the rest of the
// configuration.
func matchesAll(set caddyhttp.MatcherSet) bool {
	return !slices.ContainsFunc(set, func(m any) bool {
		paths, ok := m.(*caddyhttp.MatchPath)
		return (!ok || !slices.ContainsFunc(*paths, func(p string) bool { return p == "*" || p == "/*" })) && !coversBoth(networks(m))
	})
}

// coversAll reports whether sets of nothing but networks cover every address together.
func coversAll(sets caddyhttp.MatcherSets) bool {
	var covered []netip.Prefix
	for _, set := range sets {
		if len(set) == 1 {
			covered = append(covered, networks(set[0])...)
		}
	}
	return coversBoth(covered)
}

func coversBoth(list []netip.Prefix) bool {
	return !slices.ContainsFunc(bothFamilies, func(f netip.Prefix) bool { return !covers(list, f) })
}

// networks returns the networks that a matcher matches.
func networks(m any) (list []netip.Prefix) {
	var ranges []string
	switch m := m.(type) {
	case *caddyhttp.MatchClientIP:
		ranges = m.Ranges
	case *caddyhttp.MatchRemoteIP:
		ranges = m.Ranges
	}
	for _, text := range ranges {
		if p, err := caddyhttp.CIDRExpressionToPrefix(text); err == nil {
			list = append(list, p)
		}
	}
	return list
}

func hasRules(s *config.RuleSet) bool { return len(s.Specs) > 0 }

// chosenByClients reports whether a placeholder is one of a request, which its client writes.
func chosenByClients(name string) bool {
	return slices.ContainsFunc(FromClients, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// FromClients begin the placeholders whose values clients write.
var FromClients = []string{"http.request.header.", "http.request.uri.query", "http.request.cookie."}
