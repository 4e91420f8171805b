package zonefile

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/key"
)

const (
	wantModule  = "a matcher such as path, method or header"
	wantMatcher = "@name, a path, or " + wantModule
)

// parseMatch parses match <matcher> [<args...>] or a block of matchers. In a zone with events
// an empty block matches every request, as github.com/mholt/caddy-ratelimit has it.
func (p *Parser) parseMatch(d *caddyfile.Dispenser) error {
	if _, empty := option.OpensBlock(d); empty {
		p.native = d.Errf("%s: want %s", d.Val(), wantMatcher)
		d.NextBlock(d.Nesting()) // consumes it
		p.Zone.MatcherSetsRaw = append(p.Zone.MatcherSetsRaw, caddy.ModuleMap{})
		return nil
	}
	set, err := p.matcherSet(d, wantMatcher)
	p.Zone.MatcherSetsRaw = append(p.Zone.MatcherSetsRaw, set)
	return err
}

// preflight matches the requests by which a browser asks whether another origin may send one
// (https://fetch.spec.whatwg.org/#cors-preflight-request).
const preflight = `{"method": ["OPTIONS"], "header": {"Origin": ["*"], "Access-Control-Request-Method": ["*"]}}`

// parseExempt parses exempt <cidr...>, exempt preflight, or the same arguments as match.
func (p *Parser) parseExempt(d *caddyfile.Dispenser) error {
	args := d.RemainingArgsAsTokens()
	for range args {
		d.Prev()
	}
	for _, t := range args {
		if err := key.CheckPrefix(t.Text); err != nil {
			return option.At(t, fmt.Errorf("exempt %w", err))
		}
		if !isAddress(t.Text) {
			break
		}
	}
	read := p.addresses
	if len(args) == 1 && args[0].Text == "preflight" {
		d.NextArg()
		var set caddy.ModuleMap
		err := json.Unmarshal([]byte(preflight), &set)
		p.Zone.ExemptRaw = append(p.Zone.ExemptRaw, set)
		return err
	}
	if len(args) == 0 || !isAddress(args[0].Text) {
		read = func(d *caddyfile.Dispenser) (caddy.ModuleMap, error) {
			return p.matcherSet(d, "addresses, CIDRs, private_ranges, preflight, "+wantMatcher)
		}
	}
	set, err := read(d)
	p.Zone.ExemptRaw = append(p.Zone.ExemptRaw, set)
	return err
}

// isAddress reports whether the client_ip matcher would accept s. A placeholder counts
// as an address.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	if err != nil {
		_, err = netip.ParsePrefix(s)
	}
	return err == nil || s == "private_ranges" || strings.HasPrefix(s, "{")
}

// addresses parses addresses and returns a client_ip matcher for them.
func (p *Parser) addresses(d *caddyfile.Dispenser) (caddy.ModuleMap, error) {
	tokens := []caddyfile.Token{d.Token(), d.Token()}
	tokens[1].Text = "client_ip"
	for d.NextArg() {
		if !isAddress(d.Val()) {
			return nil, d.Errf("exempt %q: want addresses or CIDRs only, such as 10.0.0.0/8", d.Val())
		}
		t := d.Token()
		if addr, err := netip.ParseAddr(t.Text); err == nil && addr.Is4In6() { // Caddy's matcher has no client at one
			t.Text = addr.Unmap().String()
		}
		tokens = append(tokens, t)
	}
	return matcherModules(tokens)
}

// matcherSet parses one set of matchers, all of which must match.
func (p *Parser) matcherSet(d *caddyfile.Dispenser, want string) (caddy.ModuleMap, error) {
	name := d.Val()
	if d.CountRemainingArgs() > 0 {
		set, ok, err := p.helper.WithDispenser(d).MatcherToken()
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

// checkMatchers rejects unknown matchers. Unlike Caddy's error, its error has the line.
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

// matcherModules parses the matchers that follow the first token.
func matcherModules(tokens []caddyfile.Token) (caddy.ModuleMap, error) {
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	set, err := caddyhttp.ParseCaddyfileNestedMatcherSet(d)
	if err != nil {
		return nil, LocatedAt(d.Token(), err)
	}
	return set, nil
}

// ruleParser is a parsed rule whose options await the choice of an algorithm.
type ruleParser struct {
	rule      *config.Rule
	rate      caddyfile.Token
	pointer   string            // JSON pointer to the rule in the zone
	algorithm string            // named by the rule; empty: none
	options   []caddyfile.Token // including the braces of their block
}
