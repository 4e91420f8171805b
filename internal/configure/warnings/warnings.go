// Package warnings tells of configurations that are valid but rarely meant: they limit nobody, or
// everybody together.
package warnings

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/placeholders"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/limiter"
)

// Warn logs a warning, once however often it is told.
type Warn func(msg string, fields ...zap.Field)

const requestHeader = "http.request.header."

// OfZone warns of the options of a zone. mapped are the variables that map defines.
func OfZone(warn Warn, z *limiter.Zone, mapped map[string]bool) {
	zone := zap.String("zone", z.Name)
	warnOfOptions(warn, z)
	warnOfPlaceholders(warn, z, mapped)
	for _, name := range z.Config.Plan.Placeholders() {
		if header, ok := strings.CutPrefix(name, requestHeader); ok && placeholders.Forwarding(header) {
			warn("the key is a header with the client's address: any client can write it, and with the ports and addresses that proxies add, each request may be a new key",
				zone, zap.String("placeholder", "{"+name+"}"),
				zap.String("advice", "use {client_ip}, with your proxies in trusted_proxies and, unless it is X-Forwarded-For, the header in client_ip_headers"))
		}
	}
	warnOfNames(warn, zone, z)
	warnOfOverrides(warn, zone, z.Config)
	warnOfLeases(warn, zone, z)
	warnOfNoLimit(warn, zone, z)
	OfMatchers(warn, z.Matchers(), mapped, zone)
	OfMatchers(warn, z.Exempt(), mapped, zone)
}

// warnOfNames warns of headers, cookies and parameters that no request has.
func warnOfNames(warn Warn, zone zap.Field, z *limiter.Zone) {
	for _, name := range read(z) {
		header, isHeader := strings.CutPrefix(name, requestHeader)
		cookie, isCookie := strings.CutPrefix(name, "http.request.cookie.")
		query, isQuery := strings.CutPrefix(name, "http.request.uri.query.")
		advice := "write the name as clients send it"
		switch canonical := http.CanonicalHeaderKey(header); {
		case isHeader && strings.ContainsAny(header, noNames), isCookie && strings.ContainsAny(cookie, noCookies), isQuery && strings.Contains(query, "*"):
		case slices.Contains(placeholdersOf(z), name) && (canonical == "Transfer-Encoding" || canonical == "Trailer"):
			advice = "use another header: the server takes this one out before handlers see it, but for matchers"
		default:
			continue
		}
		warn("no request has a header, cookie or parameter of the zone: it is always empty", zone, zap.String("placeholder", "{"+name+"}"), zap.String("advice", advice))
	}
}

// Characters that names of headers, and of cookies, do not have, and *, which stands for any name
// nowhere. Browsers send cookies such as user[id], which keys and costs read.
const (
	noNames   = " \t\"(),/:;<=>?@[\\]{}*"
	noCookies = " \t;=*"
)

// read returns the placeholders by which a zone, and the matchers of the routes to it, match, count,
// charge and limit.
func read(z *limiter.Zone, to ...caddyhttp.MatcherSets) []string {
	return slices.Concat(placeholdersOf(z), readBy(append(slices.Clip(to), z.Matchers(), z.Exempt())...))
}

func placeholdersOf(z *limiter.Zone) []string {
	return slices.Concat(z.Config.Plan.Placeholders(), z.Config.Charge.Placeholders(), z.Config.LimitPlaceholders(), z.Config.Priority.Placeholders())
}

// headersOf returns the request headers of these.
func headersOf(z *limiter.Zone, to ...caddyhttp.MatcherSets) (headers []string) {
	for _, name := range read(z, to...) {
		if header, ok := strings.CutPrefix(name, requestHeader); ok {
			headers = append(headers, header)
		}
	}
	return headers
}

// warnOfOverrides warns, once, of overrides with fewer rules than the zone: all of its rules are
// replaced.
func warnOfOverrides(warn Warn, zone zap.Field, c *config.Checked) {
	for _, o := range c.Overrides {
		denies := slices.ContainsFunc(o.Rules, func(r *config.Rule) bool { return r.Limit == 0 && r.LimitFrom == "" })
		if o.Set != nil && !denies && len(o.Rules) < len(c.Zone.Rules) {
			warn("an override has fewer rules than the zone: for its keys it replaces all of them",
				zone, zap.Strings("override", o.Key), zap.Strings("rules", o.Set.Labels), zap.Strings("replaced", c.Rules.Labels),
				zap.String("advice", "repeat in the override the rules of the zone that its keys are to keep"))
			return
		}
	}
}

// leaseShare is the share of a window that a lease may take: what an instance keeps back for it
// is denied to the clients of the others.
const leaseShare = 10

// warnOfLeases warns of rules with a window that is short for the leases of the zone's store.
func warnOfLeases(warn Warn, zone zap.Field, z *limiter.Zone) {
	for _, s := range z.Config.Sets() {
		lease := z.LeaseOf(s)
		for i, sp := range s.Specs {
			if lease*leaseShare > sp.Window {
				warn("a lease takes more than a tenth of a rule's window: what an instance holds of the limit and does not spend is denied to others",
					zone, zap.String("rule", s.Labels[i]), zap.Duration("lease", time.Duration(lease)*time.Microsecond), zap.Duration("window", time.Duration(sp.Window)*time.Microsecond),
					zap.String("advice", "shorten lease, or give the zone a store without one"))
			}
		}
	}
}

// ByAddress reports whether a zone counts by the client's address or by the connection's.
func ByAddress(z *limiter.Zone) bool {
	for _, name := range z.Config.Plan.Placeholders() {
		if name == key.ClientIPPlaceholder || ofConnection(name) {
			return true
		}
	}
	return false
}

// ofConnection reports whether a placeholder is the address of the connection, or its network.
func ofConnection(name string) bool { return strings.HasPrefix(name, "http.request.remote.host") }
