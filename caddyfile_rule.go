package diana

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/option"
)

// ruleParser is a rule as it was read, until the zone's algorithm is known.
type ruleParser struct {
	rule      *Rule
	rate      caddyfile.Token
	algorithm string            // the one named on the rule, if any
	options   []caddyfile.Token // with the braces of their block
}

// parseRuleLine reads rule <rate> [<algorithm>] [<options>] and its block.
func (p *zoneParser) parseRuleLine(d *caddyfile.Dispenser) error {
	r, err := p.parseRuleSegment(d)
	p.zone.Rules = append(p.zone.Rules, r)
	return err
}

func (p *zoneParser) parseRuleSegment(d *caddyfile.Dispenser) (*Rule, error) {
	tokens := d.NextSegment()
	if len(tokens) < 2 || isBrace(tokens[1]) {
		return nil, option.At(tokens[0], errors.New("rule: want a rate, such as rule 10/s"))
	}
	return p.parseRule(tokens[1], tokens[2:])
}

// parseRule reads a rate and what follows it: an algorithm and its options and
// the rule's name, in any order, on the line and in a block.
func (p *zoneParser) parseRule(rate caddyfile.Token, rest []caddyfile.Token) (*Rule, error) {
	limit, window, err := parseRate(rate.Text)
	if err != nil {
		return nil, option.At(rate, err)
	}
	r := &ruleParser{rule: &Rule{Limit: limit, Window: caddy.Duration(window)}, rate: rate}
	p.rules = append(p.rules, r)
	p.lines[r.rule] = rate
	for len(rest) > 0 {
		n, err := r.parseWord(rest)
		if err != nil {
			return nil, option.At(rest[0], err)
		}
		rest = rest[n:]
	}
	return r.rule, nil
}

// parseWord reads the first of the tokens and returns how many it took.
func (r *ruleParser) parseWord(tokens []caddyfile.Token) (int, error) {
	t := tokens[0]
	switch {
	case t.Text == "name":
		if r.rule.Name != "" {
			return 0, fmt.Errorf("name stands twice, first name %s: want it once", r.rule.Name)
		}
		if len(tokens) < 2 || isBrace(tokens[1]) || tokens[1].Line != t.Line {
			return 0, errors.New("name: want a name after it")
		}
		r.rule.Name = tokens[1].Text
		return 2, checkName(tokens[1].Text)
	case !isBrace(t) && slices.Contains(algorithms.Names(), t.Text):
		if r.algorithm != "" {
			return 0, fmt.Errorf("algorithm %s beside %s: want one", t.Text, r.algorithm)
		}
		r.algorithm = t.Text
		return 1, nil
	}
	r.options = append(r.options, t)
	return 1, nil
}

func isBrace(t caddyfile.Token) bool {
	return !t.Quoted() && (t.Text == "{" || t.Text == "}")
}

// chooseAlgorithms gives the options of every rule to its algorithm, which is
// the rule's, the zone's or the default. A rule that says nothing is left to
// provisioning.
func (p *zoneParser) chooseAlgorithms() error {
	for _, r := range p.rules {
		if err := r.chooseAlgorithm(p.zone.Algorithm); err != nil {
			return err
		}
	}
	return nil
}

func (r *ruleParser) chooseAlgorithm(zoneAlgorithm string) error {
	hasOptions := slices.ContainsFunc(r.options, func(t caddyfile.Token) bool { return !isBrace(t) })
	if r.algorithm == "" && !hasOptions {
		return nil
	}
	name := orDefault(r.algorithm, orDefault(zoneAlgorithm, defaultAlgorithm(r.rule.Limit)))
	info, err := caddy.GetModule(algorithms.Namespace + "." + name)
	if err != nil {
		return option.At(r.rate, err)
	}
	a := info.New()
	if hasOptions {
		u, ok := a.(caddyfile.Unmarshaler)
		if !ok {
			return option.At(r.rate, fmt.Errorf("algorithm %s: want no options: it has none for a Caddyfile", name))
		}
		first := r.rate.Clone() // so that the options stand on the line of what is before them
		first.Text = name
		d := caddyfile.NewDispenser(append([]caddyfile.Token{first}, r.options...))
		if err := u.UnmarshalCaddyfile(d); err != nil {
			return err
		}
		if err := option.End(d, name); err != nil {
			return err
		}
	}
	r.rule.AlgorithmRaw, err = moduleJSON(a, "name", name)
	return err
}

// moduleJSON is a module's JSON with its name. Unlike Caddy's own it takes no
// number through a float.
func moduleJSON(m caddy.Module, key, name string) (json.RawMessage, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, err
	}
	if fields[key], err = json.Marshal(name); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// parseOverride reads override <part...> unlimited, or a block of rules.
func (p *zoneParser) parseOverride(d *caddyfile.Dispenser) error {
	o := new(Override)
	p.zone.Overrides = append(p.zone.Overrides, o)
	at := d.Token()
	p.lines[o] = at
	o.Key = d.RemainingArgs()
	s := &option.Set{Many: map[string]option.Parse{"rule": func(d *caddyfile.Dispenser) error {
		r, err := p.parseRuleSegment(d)
		o.Rules = append(o.Rules, r)
		return err
	}}}
	if err := s.Block(d); err != nil || len(o.Rules) > 0 {
		return err
	}
	last := len(o.Key) - 1
	if last < 0 || o.Key[last] != "unlimited" {
		return option.At(at, fmt.Errorf("override %q: want unlimited after the parts, or a block of rule lines", o.Key))
	}
	o.Key, o.Unlimited = o.Key[:last], true
	return nil
}
