package zonefile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/option"
)

// parseRuleSegment parses a rule and adds it to a list.
func (p *Parser) parseRuleSegment(d *caddyfile.Dispenser, to *[]*config.Rule) error {
	tokens := d.NextSegment()
	if len(tokens) < 2 || isBrace(tokens[1]) {
		return option.At(tokens[0], errors.New("rule: want a rate, such as rule 10/s"))
	}
	r, err := p.ParseRule(tokens[1], tokens[2:])
	if err == nil {
		*to = append(*to, r)
	}
	return err
}

// isRuleWord reports whether a word may follow the rate of a rule.
func isRuleWord(word string) bool {
	return slices.Contains(slices.Concat(algorithms.RuleWords, algorithms.Names()), word) || len(algorithms.WithOption(word)) > 0
}

// Spaced returns an error about a rate that is written with spaces, such as 10 / s; nil: the tokens
// do not begin with one.
func Spaced(tokens []caddyfile.Token) error {
	const most = 4 // 10 / 30 s
	var rate, spaced string
	for i, t := range tokens[:min(len(tokens), most)] {
		rate, spaced = rate+t.Text, spaced+" "+t.Text
		if t.Line != tokens[0].Line {
			break
		}
		if _, _, err := config.ParseRate(rate); i > 0 && err == nil {
			return option.At(tokens[0], fmt.Errorf("rate %q: want no spaces: %s", strings.TrimSpace(spaced), rate))
		}
	}
	return nil
}

// ParseRule parses a rate and what follows it, on the line and in a block: an algorithm
// with its options, and the rule's name and block, in any order.
func (p *Parser) ParseRule(rate caddyfile.Token, rest []caddyfile.Token) (*config.Rule, error) {
	from, window, varies, err := config.CutLimitFrom(rate.Text)
	var limit int64
	if !varies {
		limit, window, err = config.ParseRate(rate.Text)
	}
	if err != nil {
		if spaced := Spaced(append([]caddyfile.Token{rate}, rest...)); spaced != nil {
			return nil, spaced
		}
		return nil, option.At(rate, err)
	}
	r := &ruleParser{rule: &config.Rule{Limit: limit, LimitFrom: from, Window: window}, rate: rate}
	for len(rest) > 0 {
		n, err := r.parseWord(rest)
		if err != nil {
			return nil, option.At(rest[0], err)
		}
		rest = rest[n:]
	}
	if varies && r.rule.Limit == 0 {
		return nil, option.At(rate, fmt.Errorf("rate %q: want else <count> after it, for requests that bring no limit", rate.Text))
	}
	p.rules, p.lines[r.rule] = append(p.rules, r), rate
	return r.rule, nil
}

// parseWord parses the first of the tokens and returns how many it consumed.
func (r *ruleParser) parseWord(tokens []caddyfile.Token) (int, error) {
	t := tokens[0]
	switch {
	case t.Text == "name":
		if r.rule.Name != "" {
			return 0, fmt.Errorf("name is given twice, first name %s: want it once", r.rule.Name)
		}
		if len(tokens) < 2 || isBrace(tokens[1]) || tokens[1].Line != t.Line {
			return 0, errors.New("name: want a name after it")
		}
		r.rule.Name = tokens[1].Text
		return 2, config.CheckName(tokens[1].Text)
	case t.Text == "block":
		if r.rule.Block != 0 {
			return 0, fmt.Errorf("block is given twice, first block %v: want it once", time.Duration(r.rule.Block))
		}
		if len(tokens) < 2 || isBrace(tokens[1]) || tokens[1].Line != t.Line {
			return 0, errors.New("block: want a duration after it, such as 1h")
		}
		d, err := caddy.ParseDuration(tokens[1].Text)
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("block %q: want a positive duration, such as 1h", tokens[1].Text)
		}
		r.rule.Block = caddy.Duration(d)
		return 2, nil
	case t.Text == "notify":
		return r.parseNotify(tokens)
	case t.Text == "else":
		return r.parseElse(tokens)
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

// parseNotify parses notify <percent>...
func (r *ruleParser) parseNotify(tokens []caddyfile.Token) (n int, err error) {
	if r.rule.Notify != nil {
		return 0, errors.New("notify is given twice: want it once, with all percentages")
	}
	for n = 1; n < len(tokens) && tokens[n].Line == tokens[0].Line; n++ {
		percent, err := strconv.Atoi(strings.TrimSuffix(tokens[n].Text, "%"))
		if err != nil {
			break // the next word of the rule
		}
		r.rule.Notify = append(r.rule.Notify, percent)
	}
	if n == 1 {
		return 0, errors.New("notify: want percentages after it, such as notify 50 80 100")
	}
	return n, nil
}

// parseElse parses else <count>.
func (r *ruleParser) parseElse(tokens []caddyfile.Token) (int, error) {
	switch {
	case r.rule.LimitFrom == "":
		return 0, errors.New("else: want it only after a limit from the request, such as rule {http.auth.user.limit}/1m else 100")
	case r.rule.Limit != 0:
		return 0, errors.New("else is given twice: want it once")
	case len(tokens) < 2 || isBrace(tokens[1]) || tokens[1].Line != tokens[0].Line:
		return 0, errors.New("else: want a count after it, such as else 100")
	}
	n, err := strconv.ParseInt(tokens[1].Text, 10, 64)
	if err != nil || n < 1 || tokens[1].Text[0] == '+' {
		return 0, fmt.Errorf("else %q: want a whole number of at least 1", tokens[1].Text)
	}
	r.rule.Limit = n
	return 2, nil
}

func isBrace(t caddyfile.Token) bool {
	return !t.Quoted() && (t.Text == "{" || t.Text == "}")
}

// ChooseAlgorithms parses the options of every rule with its algorithm: the rule's, the
// zone's or the default. A rule with neither is left to provisioning.
func (p *Parser) ChooseAlgorithms() error {
	var all []error
	for _, r := range p.rules {
		if err := r.chooseAlgorithm(p.Zone.Algorithm); err != nil {
			all = append(all, err)
			delete(p.lines, r.rule) // what else is wrong with it may follow from this
		}
	}
	return option.Join(all...)
}

func (r *ruleParser) chooseAlgorithm(zoneAlgorithm string) error {
	hasOptions := slices.ContainsFunc(r.options, func(t caddyfile.Token) bool { return !isBrace(t) })
	if r.algorithm == "" && !hasOptions {
		return nil
	}
	name := cmp.Or(r.algorithm, zoneAlgorithm, r.rule.DefaultAlgorithm())
	info, err := caddy.GetModule(algorithms.Namespace + "." + name)
	if err != nil {
		return option.At(r.rate, err)
	}
	a := info.New()
	if hasOptions {
		u, ok := a.(caddyfile.Unmarshaler)
		if !ok {
			return option.At(r.rate, fmt.Errorf("algorithm %s: want no options: it supports none in a Caddyfile", name))
		}
		first := r.rate.Clone() // on the line of the rate, as the options are
		first.Text = name
		d := caddyfile.NewDispenser(append([]caddyfile.Token{first}, r.options...))
		if err := u.UnmarshalCaddyfile(d); err != nil {
			return err
		}
		if err := option.End(d, name); err != nil {
			return err
		}
	}
	// Unlike this, caddyconfig.JSONModuleObject converts numbers to float64.
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	fields["name"] = json.RawMessage(strconv.Quote(name)) // of a registered module
	r.rule.AlgorithmRaw, err = json.Marshal(fields)
	return err
}
