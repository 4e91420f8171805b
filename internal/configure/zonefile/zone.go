// Package zonefile parses the Caddyfile of a zone.
package zonefile

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/compat"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/usage/settle"
)

// Parser parses a zone.
type Parser struct {
	Zone *config.Zone // as far as it is parsed

	helper  httpcaddyfile.Helper
	options *option.Set
	rules   []*ruleParser              // of the zone and of its overrides
	lines   map[string]caddyfile.Token // the positions of rules and overrides, by JSON pointer
	at      caddyfile.Token
	native  error // what is wrong unless the zone has events; nil: nothing
}

// The places of the options of a zone, and of the words of a rule.
const (
	InZone = "a zone"
	inRule = "a rule, after its rate"
)

func init() {
	option.AddPlace(InZone, New(httpcaddyfile.Helper{}, caddyfile.Token{}).Options().Has)
	option.AddPlace(inRule, isRuleWord)
	option.AddPlace("the block of tokens", tokensOptions(new(config.Tokens)).Has)
	option.AddPlace("the block of in_flight adaptive", adaptiveOptions(new(config.Adaptive)).Has)
	option.AddPlace("the block of respond", respondOptions(new(config.Respond)).Has)
	option.AddPlace("the block of an override without parts", new(Parser).overrideOptions(new(config.Override)).Has)
}

// New returns a parser of a zone that begins at a token. Named matchers are those of the
// helper.
func New(h httpcaddyfile.Helper, at caddyfile.Token) *Parser {
	return &Parser{helper: h, Zone: new(config.Zone), lines: make(map[string]caddyfile.Token), at: at}
}

// Options returns the options of a zone.
func (p *Parser) Options() *option.Set {
	z := p.Zone
	p.options = &option.Set{
		One: map[string]option.Parse{
			"key":                p.parseKey,
			"key_missing":        option.Text(&z.KeyMissing, "client_ip, share, skip or deny"),
			"key_repeated":       option.Text(&z.KeyRepeated, "deny, first or join"),
			"ipv4_prefix":        bits(&z.IPv4Prefix, 32),
			"ipv6_prefix":        bits(&z.IPv6Prefix, 128),
			"algorithm":          option.Checked(&z.Algorithm, "the name of an algorithm", checkAlgorithm),
			"in_flight":          p.parseInFlight,
			"linger":             option.Duration(&z.Linger),
			"prevent_duplicates": p.parseDuplicates,
			"cost":               option.Text(&z.Cost, "a whole number of at least 1, or a placeholder"),
			"settle":             words("a placeholder, such as {http.response.header.X-Tokens}", func(terms []string) { z.Settle = strings.Join(terms, " ") }),
			"hold":               option.Flag(&z.Hold),
			"tokens":             p.parseTokens,
			"group_by":           words("one part or more, such as {http.auth.user.id} {body.model}", func(parts []string) { z.GroupBy = parts }),
			"unit":               option.Text(&z.Unit, "a word, such as microdollars"),
			"max_body":           size(&z.MaxBody, config.MaxMaxBody),
			"count_status": words("one status or more, such as 401 or 4xx", func(list []string) {
				for _, s := range list {
					z.CountStatus = append(z.CountStatus, config.Value(s))
				}
			}),
			"max_wait":    option.Duration(&z.MaxWait),
			"max_waiting": option.Whole(&z.MaxWaiting, 1, config.MaxMaxWaiting),
			"shadow":      option.Flag(&z.Shadow),
			"respond":     p.parseRespond,
			"store":       p.parseStore,
			"max_keys":    option.Whole(&z.MaxKeys, 1, config.MaxMaxKeys),
			"events":      option.Whole(&z.MaxEvents, 1, option.Max),
			"window":      option.Duration(&z.Window),
		},
		Many: map[string]option.Parse{
			"match":    p.parseMatch,
			"exempt":   p.parseExempt,
			"rule":     func(d *caddyfile.Dispenser) error { return p.parseRuleSegment(d, "", &p.Zone.Rules) },
			"override": p.parseOverride,
		},
		Check:  func() error { return z.CheckOptions(settle.Responses{}) },
		Within: []string{inRule, "the block of tokens", "the block of in_flight adaptive", "the block of respond"},
		Unknown: func(word string) error {
			if word == "zone" {
				return fmt.Errorf("a zone in a zone: want the } of that which begins at %s:%d before it", p.at.File, p.at.Line)
			}
			return nil
		},
	}
	return p.options
}

// Check checks the complete zone. Its errors have the lines of the invalid rules and
// overrides, or otherwise of the zone. provision returns what is found only when the zone is
// provisioned. What may follow from an option that was invalid is left out.
func (p *Parser) Check(provision func(*config.Zone) error) error {
	switch {
	case p.options.Failed("algorithm", "max_wait"): // rules may be invalid without them
		return nil
	case p.native != nil && !compat.HasEvents(p.Zone) && !p.options.Failed("events", "window"):
		return p.native
	}
	chosen := p.ChooseAlgorithms()
	return option.Join(chosen, option.Each(p.checkZone(provision), func(err error) error {
		in, ok := errors.AsType[*config.Error](err)
		if ok {
			err = &config.Error{Zone: in.Zone, Err: in.Err}
			if at, ok := p.position(in.Pointer); ok {
				return option.At(at, err)
			}
		}
		if chosen == nil && !p.options.Failed() {
			return option.At(p.at, err)
		}
		return nil // it may follow from what is reported already
	}))
}

// position returns the position of the part of the zone to which a JSON pointer leads; false: it is
// the zone, or nothing that has a line.
func (p *Parser) position(pointer string) (at caddyfile.Token, ok bool) {
	if path.Dir(pointer) == "/overrides" && p.options.Failed("key") {
		return at, false
	}
	if at, ok = p.options.Position(strings.TrimPrefix(pointer, "/")); !ok {
		at, ok = p.lines[pointer]
	}
	return at, ok
}

// nextOverride returns the JSON pointer to the next override of the zone.
func (p *Parser) nextOverride() string { return fmt.Sprintf("/overrides/%d", len(p.Zone.Overrides)) }

// checkZone checks the zone, which may have options of other plugins.
func (p *Parser) checkZone(provision func(*config.Zone) error) error {
	normal, err := compat.Normalize(p.Zone)
	if err == nil {
		_, err = normal.Check(settle.Responses{})
	}
	if err == nil && !p.options.Failed() {
		err = provision(normal)
	}
	return err
}

func checkAlgorithm(name string) error {
	_, err := config.LoadAlgorithm(new(config.Rule), name)
	return err
}

func (p *Parser) parseKey(d *caddyfile.Dispenser) error {
	err := words("one part or more, such as {client_ip}", func(parts []string) { p.Zone.Key = parts })(d)
	if err == nil && slices.Equal(p.Zone.Key, config.Parts{""}) { // as if it had none
		p.Zone.Key, p.native = nil, d.Errf("key: an empty part: want a placeholder or a constant")
	}
	return err
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
		if option.TooLong(v) {
			return d.Errf("prevent_duplicates %q: want at most %s", v, option.Longest)
		}
		if err != nil || n <= 0 || pd.Window != 0 {
			return d.Errf("prevent_duplicates %q: want [<duration>] [body], such as 5s body", v)
		}
		pd.Window = caddy.Duration(n)
	}
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
	return tokensOptions(t).Block(d)
}

// tokensOptions returns the options of the block of tokens.
func tokensOptions(t *config.Tokens) *option.Set {
	return &option.Set{One: map[string]option.Parse{
		"input":       weight(&t.Input),
		"cached":      weight(&t.Cached),
		"cache_write": weight(&t.CacheWrite),
		"output":      weight(&t.Output),
		"reserve":     option.Text(&t.Reserve, "a whole number of at least 1, or a placeholder"),
		"ask_usage":   option.Flag(&t.AskUsage),
	}}
}

// weight parses what a token weighs, perhaps in tiers by the length of the input.
func weight(dst *config.Value) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		name, words := d.Val(), d.RemainingArgs()
		if len(words) == 0 {
			return d.Errf("%s: want a weight, such as 0.25 or a placeholder", name)
		}
		*dst = config.Value(strings.Join(words, " "))
		return nil
	}
}

// parseRespond parses respond [<status>] [<body>] and its block.
func (p *Parser) parseRespond(d *caddyfile.Dispenser) error {
	r := new(config.Respond)
	p.Zone.Respond = r
	args := d.RemainingArgs()
	if len(args) > 0 {
		if n, err := strconv.Atoi(args[0]); err == nil {
			if n == 0 || !option.IsWhole(args[0]) { // in JSON, 0 is the default
				return d.Errf("respond %s: want 400 to 599, or 200", args[0])
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
	return respondOptions(r).Block(d)
}

// respondOptions returns the options of the block of respond.
func respondOptions(r *config.Respond) *option.Set {
	return &option.Set{
		One:  map[string]option.Parse{"problem": option.Flag(&r.Problem)},
		Many: map[string]option.Parse{"header": Header(&r.Headers)},
	}
}

// parseOverride parses override <part...> unlimited, or a block of rules. Without parts,
// the block has the keys, too.
func (p *Parser) parseOverride(d *caddyfile.Dispenser) error {
	o, at := new(config.Override), d.Token()
	o.Key = d.RemainingArgs()
	s := p.overrideOptions(o)
	if len(o.Key) > 0 {
		delete(s.Many, "key")
		s.One = nil
	}
	if err := s.Block(d); err != nil {
		return err
	}
	switch last := len(o.Key) - 1; {
	case last < 0 && (!o.Many() || !o.Unlimited && len(o.Rules) == 0):
		return option.At(at, errors.New("override: want parts, or a block of key or file lines, and unlimited or rule lines"))
	case last < 0 || len(o.Rules) > 0:
	case o.Key[last] != "unlimited":
		return option.At(at, fmt.Errorf("override %q: want unlimited after the parts, or a block of rule lines", o.Key))
	default:
		o.Key, o.Unlimited = o.Key[:last], true
	}
	p.lines[p.nextOverride()] = at
	p.Zone.Overrides = append(p.Zone.Overrides, o)
	return nil
}

// overrideOptions returns the options of the block of an override without parts.
func (p *Parser) overrideOptions(o *config.Override) *option.Set {
	return &option.Set{
		One: map[string]option.Parse{
			"file":      option.Text(&o.KeysFile, "the path of a file with a key per line"),
			"unlimited": option.Flag(&o.Unlimited),
		},
		Many: map[string]option.Parse{
			"key":  words("as many parts as the zone's key has", func(parts []string) { o.Keys = append(o.Keys, parts) }),
			"rule": func(d *caddyfile.Dispenser) error { return p.parseRuleSegment(d, p.nextOverride(), &o.Rules) },
		},
	}
}
