package diana

import (
	"net/netip"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/option"
)

const (
	wantModule  = "a matcher such as path, method or header"
	wantMatcher = "@name, a path, or " + wantModule
)

// parseMatch reads match <matcher> [<args...>] or a block of matchers.
func (p *zoneParser) parseMatch(d *caddyfile.Dispenser) error {
	set, err := p.matcherSet(d, wantMatcher)
	p.zone.MatcherSetsRaw = append(p.zone.MatcherSetsRaw, set)
	return err
}

// parseExempt reads the same, or exempt <cidr...>.
func (p *zoneParser) parseExempt(d *caddyfile.Dispenser) error {
	args := d.RemainingArgsAsTokens()
	for range args {
		d.Prev()
	}
	read := p.addresses
	if len(args) == 0 || !isAddress(args[0].Text) {
		read = func(d *caddyfile.Dispenser) (caddy.ModuleMap, error) {
			return p.matcherSet(d, "addresses, CIDRs, "+wantMatcher)
		}
	}
	set, err := read(d)
	p.zone.ExemptRaw = append(p.zone.ExemptRaw, set)
	return err
}

// isAddress says whether the client_ip matcher would take s. A placeholder is
// taken for an address.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	if err != nil {
		_, err = netip.ParsePrefix(s)
	}
	return err == nil || s == "private_ranges" || strings.HasPrefix(s, "{")
}

// addresses makes a client_ip matcher of what follows.
func (p *zoneParser) addresses(d *caddyfile.Dispenser) (caddy.ModuleMap, error) {
	tokens := []caddyfile.Token{d.Token(), d.Token()}
	tokens[1].Text = "client_ip"
	for d.NextArg() {
		if !isAddress(d.Val()) {
			return nil, d.Errf("exempt %q: want addresses or CIDRs only, such as 10.0.0.0/8", d.Val())
		}
		tokens = append(tokens, d.Token())
	}
	return matcherModules(tokens)
}

// matcherSet reads one set of matchers, all of which must match.
func (p *zoneParser) matcherSet(d *caddyfile.Dispenser, want string) (caddy.ModuleMap, error) {
	name := d.Val()
	if d.CountRemainingArgs() > 0 {
		set, ok, err := p.WithDispenser(d).MatcherToken()
		switch {
		case err != nil:
			return nil, d.WrapErr(err)
		case ok && set == nil: // *
			return caddy.ModuleMap{}, nil
		case ok:
			return set, nil
		}
		d.Prev()
	}
	tokens := d.NextSegment()
	if len(tokens) == 1 {
		return nil, d.Errf("%s: want %s", name, want)
	}
	if err := checkMatchers(tokens, want); err != nil {
		return nil, err
	}
	return matcherModules(tokens)
}

// checkMatchers refuses unknown matchers with their line, which Caddy itself
// would not know.
func checkMatchers(tokens []caddyfile.Token, want string) error {
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	name := d.Val()
	for nesting := d.Nesting(); d.NextArg() || d.NextBlock(nesting); {
		if d.Token().Quoted() { // an expression
			continue
		}
		if _, err := caddy.GetModule("http.matchers." + d.Val()); err != nil {
			if d.Nesting() > nesting {
				want = wantModule
			}
			return d.Errf("%s %q: want %s", name, d.Val(), want)
		}
		d.NextSegment()
	}
	return nil
}

// matcherModules reads the matchers that follow the first token.
func matcherModules(tokens []caddyfile.Token) (caddy.ModuleMap, error) {
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	set, err := caddyhttp.ParseCaddyfileNestedMatcherSet(d)
	if err != nil {
		return nil, option.Located(d, err)
	}
	return set, nil
}
