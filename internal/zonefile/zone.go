// Package zonefile parses the Caddyfile of a zone.
package zonefile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/option"
)

// Parser parses a zone.
type Parser struct {
	Zone *config.Zone // as far as it is parsed

	helper httpcaddyfile.Helper
	rules  []*ruleParser           // of the zone and of its overrides
	lines  map[any]caddyfile.Token // the positions of rules and overrides
	at     caddyfile.Token
	native error // what is wrong unless the zone has events; nil: nothing
}

// New returns a parser of a zone that begins at a token. Named matchers are those of the
// helper.
func New(h httpcaddyfile.Helper, at caddyfile.Token) *Parser {
	return &Parser{helper: h, Zone: new(config.Zone), lines: make(map[any]caddyfile.Token), at: at}
}

// Options returns the options of a zone.
func (p *Parser) Options() *option.Set {
	z := p.Zone
	return &option.Set{
		One: map[string]option.Parse{
			"key":                p.parseKey,
			"key_missing":        option.Text(&z.KeyMissing, "client_ip, share, skip or deny"),
			"key_repeated":       option.Text(&z.KeyRepeated, "deny, first or join"),
			"ipv4_prefix":        option.Bits(&z.IPv4Prefix, 32),
			"ipv6_prefix":        option.Bits(&z.IPv6Prefix, 128),
			"algorithm":          option.Checked(&z.Algorithm, "the name of an algorithm", checkAlgorithm),
			"in_flight":          option.Whole(&z.InFlight, 1, config.MaxInFlight),
			"linger":             option.Duration(&z.Linger),
			"prevent_duplicates": p.parseDuplicates,
			"cost":               option.Text(&z.Cost, "a whole number of at least 1, or a placeholder"),
			"settle":             p.parseSettle,
			"hold":               option.Flag(&z.Hold),
			"tokens":             p.parseTokens,
			"max_body":           option.Size(&z.MaxBody, config.MaxMaxBody),
			"count_status":       p.parseStatuses,
			"max_wait":           option.Duration(&z.MaxWait),
			"max_waiting":        option.Whole(&z.MaxWaiting, 1, config.MaxMaxWaiting),
			"shadow":             option.Flag(&z.Shadow),
			"respond":            p.parseRespond,
			"store":              option.Text(&z.Store, "the name of a store, or local"),
			"max_keys":           option.Whole(&z.MaxKeys, 1, option.Max),
			"events":             option.Whole(&z.MaxEvents, 1, option.Max),
			"window":             option.Duration(&z.Window),
		},
		Many: map[string]option.Parse{
			"match":    p.parseMatch,
			"exempt":   p.parseExempt,
			"rule":     p.parseRuleLine,
			"override": p.parseOverride,
		},
		Check: z.CheckOptions,
	}
}

// Check checks the complete zone. Its error has the line of the invalid rule or
// override, or otherwise of the zone.
func (p *Parser) Check() error {
	if p.native != nil && !p.Zone.HasEvents() {
		return p.native
	}
	if err := p.ChooseAlgorithms(); err != nil {
		return err
	}
	err := checkZone(p.Zone)
	if err == nil {
		return nil
	}
	at := p.at
	var c *config.Error
	if errors.As(err, &c) {
		if t, ok := p.lines[c.At]; ok {
			at = t
		}
	}
	return option.At(at, err)
}

// checkZone checks a zone, which may have options of other plugins.
func checkZone(z *config.Zone) error {
	normal, err := z.Normalize()
	if err == nil {
		_, err = normal.Check()
	}
	return err
}

func checkAlgorithm(name string) error {
	_, err := config.LoadAlgorithm(new(config.Rule), name)
	return err
}

func (p *Parser) parseKey(d *caddyfile.Dispenser) error {
	if p.Zone.Key = d.RemainingArgs(); len(p.Zone.Key) == 0 {
		return d.Errf("key: want one part or more, such as {client_ip}")
	}
	if slices.Equal(p.Zone.Key, config.Parts{""}) { // as if it had none
		p.Zone.Key, p.native = nil, d.Errf("key: an empty part: want a placeholder or a constant")
	}
	return nil
}

// parseDuplicates parses prevent_duplicates [<window>] [body].
func (p *Parser) parseDuplicates(d *caddyfile.Dispenser) error {
	pd := new(config.PreventDuplicates)
	p.Zone.PreventDuplicates = pd
	for d.NextArg() {
		v := d.Val()
		if v == "body" && !pd.Body {
			pd.Body = true
			continue
		}
		n, err := caddy.ParseDuration(v)
		if err != nil || n <= 0 || pd.Window != 0 {
			return d.Errf("prevent_duplicates %q: want [<duration>] [body], such as 5s body", v)
		}
		pd.Window = caddy.Duration(n)
	}
	return nil
}

func (p *Parser) parseStatuses(d *caddyfile.Dispenser) error {
	for d.NextArg() {
		p.Zone.CountStatus = append(p.Zone.CountStatus, config.Value(d.Val()))
	}
	if len(p.Zone.CountStatus) == 0 {
		return d.Errf("count_status: want one status or more, such as 401 or 4xx")
	}
	return nil
}

func (p *Parser) parseSettle(d *caddyfile.Dispenser) error {
	terms := d.RemainingArgs()
	if len(terms) == 0 {
		return d.Errf("settle: want a placeholder, such as {http.response.header.X-Tokens}")
	}
	p.Zone.Settle = strings.Join(terms, " ")
	return nil
}

// parseTokens parses tokens [<format>] and its block.
func (p *Parser) parseTokens(d *caddyfile.Dispenser) error {
	t := new(config.Tokens)
	p.Zone.Tokens = t
	if d.NextArg() {
		t.Format = d.Val()
	}
	if d.NextArg() {
		return d.Errf("tokens: unexpected %q: want one format", d.Val())
	}
	const weight = "a decimal such as 0.25, or a placeholder"
	s := &option.Set{One: map[string]option.Parse{
		"input":       option.Text(&t.Input, weight),
		"cached":      option.Text(&t.Cached, weight),
		"cache_write": option.Text(&t.CacheWrite, weight),
		"output":      option.Text(&t.Output, weight),
		"reserve":     option.Text(&t.Reserve, "a whole number of at least 1, or a placeholder"),
		"ask_usage":   option.Flag(&t.AskUsage),
	}}
	return s.Block(d)
}

// parseRespond parses respond [<status>] [<body>] and its block.
func (p *Parser) parseRespond(d *caddyfile.Dispenser) error {
	r := new(config.Respond)
	p.Zone.Respond = r
	args := d.RemainingArgs()
	if len(args) > 0 {
		if n, err := strconv.Atoi(args[0]); err == nil {
			if n == 0 { // in JSON, 0 is the default
				return d.Errf("respond 0: want 400 to 599, or 200")
			}
			r.Status, args = n, args[1:]
		}
	}
	if len(args) > 0 {
		r.Body, args = args[0], args[1:]
	}
	if len(args) > 0 {
		return d.Errf("respond: unexpected %q: want [<status>] [<body>]", args[0])
	}
	s := &option.Set{
		One:  map[string]option.Parse{"problem": option.Flag(&r.Problem)},
		Many: map[string]option.Parse{"header": option.Header(&r.Headers)},
	}
	return s.Block(d)
}

// parseOverride parses override <part...> unlimited, or a block of rules. Without parts,
// the block has the keys, too.
func (p *Parser) parseOverride(d *caddyfile.Dispenser) error {
	o := new(config.Override)
	p.Zone.Overrides = append(p.Zone.Overrides, o)
	at := d.Token()
	p.lines[o] = at
	o.Key = d.RemainingArgs()
	s := &option.Set{Many: map[string]option.Parse{"rule": func(d *caddyfile.Dispenser) error {
		r, err := p.parseRuleSegment(d)
		o.Rules = append(o.Rules, r)
		return err
	}}}
	if len(o.Key) == 0 {
		s.One = map[string]option.Parse{
			"file":      option.Text(&o.KeysFile, "the path of a file with a key per line"),
			"unlimited": option.Flag(&o.Unlimited),
		}
		s.Many["key"] = parseKeyOf(o)
	}
	if err := s.Block(d); err != nil {
		return err
	}
	if len(o.Key) == 0 {
		if !o.Many() || !o.Unlimited && len(o.Rules) == 0 {
			return option.At(at, errors.New("override: want parts, or a block of key or file lines, and unlimited or rule lines"))
		}
		return nil
	}
	if len(o.Rules) > 0 {
		return nil
	}
	last := len(o.Key) - 1
	if o.Key[last] != "unlimited" {
		return option.At(at, fmt.Errorf("override %q: want unlimited after the parts, or a block of rule lines", o.Key))
	}
	o.Key, o.Unlimited = o.Key[:last], true
	return nil
}

// parseKeyOf parses key <part...> in the block of an override.
func parseKeyOf(o *config.Override) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		parts := d.RemainingArgs()
		if len(parts) == 0 {
			return d.Errf("key: want as many parts as the zone's key has")
		}
		o.Keys = append(o.Keys, parts)
		return nil
	}
}
