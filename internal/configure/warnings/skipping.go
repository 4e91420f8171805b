package warnings

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/configure/walk"
	"github.com/dianalimiter/diana/internal/key"
)

// warnOfSkipping warns of a zone that clients avoid by leaving out what it counts them by. There is none
// where a handler before the zone authenticates clients or sets the value, the zone matches only requests with it,
// or another zone counts all of these requests.
func (p *place) warnOfSkipping(warn Warn, places []walk.Place) {
	z := p.Zone
	if z.Config.Plan.Missing != key.MissingSkip || slices.ContainsFunc(p.Before(), authenticates) || slices.ContainsFunc(places, p.counts) {
		return
	}
	matched := readBy(append(slices.Clip(p.Matchers), z.Matchers())...)
	for _, name := range z.Config.Plan.Placeholders() {
		given := slices.ContainsFunc(matched, func(other string) bool { return strings.EqualFold(name, other) })
		set := slices.ContainsFunc(p.Before(), func(h caddyhttp.MiddlewareHandler) bool { return setsPlaceholder(h, name) })
		if (chosenByClients(name) || strings.HasPrefix(name, "http.request.body.")) && !given && !set {
			warn("key_missing skip with a value of the request: a client that leaves it out is never limited",
				zap.String("zone", z.Name), zap.String("placeholder", "{"+name+"}"),
				zap.String("advice", "use key_missing deny or client_ip, or a second zone with key {client_ip}"))
		}
	}
}

// counts reports whether another zone counts the requests that this one skips, by the client's address.
func (p *place) counts(other walk.Place) bool {
	passes := len(other.Zone.Matchers()) == 0 && !slices.ContainsFunc(other.Matchers, func(m caddyhttp.MatcherSets) bool { return len(m) > 0 })
	return other.Zone != p.Zone && passes && ByAddress(other.Zone) && other.Zone.Config.Plan.Missing != key.MissingSkip
}
