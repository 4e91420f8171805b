package zonefile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/option"
)

// parseRuleSegment parses a line of a rule as [Parser.ParseRule] does.
func (p *Parser) parseRuleSegment(d *caddyfile.Dispenser, override string, to *[]*config.Rule) error {
	tokens := d.NextSegment()
	if len(tokens) < 2 || isBrace(tokens[1]) {
		return option.At(tokens[0], errors.New("rule: want a rate, such as rule 10/s"))
	}
	return p.ParseRule(override, to, tokens[1], tokens[2:])
}

// ruleWords are the words of a rule that belong to no algorithm.
var ruleWords = slices.Sorted(maps.Keys((&ruleParser{rule: new(config.Rule)}).words().One))

// isRuleWord reports whether a word may follow the rate of a rule.
func isRuleWord(word string) bool {
	return slices.Contains(slices.Concat(ruleWords, option.Modules(algorithms.Namespace)), word) || len(withOption(word)) > 0
}

// withOption returns the names of the algorithms whose JSON has an option.
func withOption(option string) []string {
	var names []string
	for _, m := range caddy.GetModules(algorithms.Namespace) {
		t := reflect.TypeOf(m.New())
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == option {
				names = append(names, m.ID.Name())
			}
		}
	}
	return names
}

// Spaced returns an error about a rate that is written with spaces, such as 10 / s; nil: the tokens
// do not begin with one.
func Spaced(tokens []caddyfile.Token) error {
	const most = 4 // 10 / 30 s
	var rate, spaced string
	var words []string
	for i, t := range tokens[:min(len(tokens), most+1)] {
		rate, spaced = rate+t.Text, spaced+" "+t.Text
		if t.Line != tokens[0].Line {
			break
		}
		words = append(words, t.Text)
		if _, _, err := config.ParseRate(rate); i > 0 && err == nil {
			return option.At(tokens[0], fmt.Errorf("rate %q: want no spaces: %s", strings.TrimSpace(spaced), rate))
		}
	}
	if meant := config.RateMeant(words); meant != "" {
		return option.At(tokens[0], fmt.Errorf("rate %q: did you mean %s", strings.Join(words, " "), meant))
	}
	return nil
}

// ParseRule parses a rate and what follows it, on the line and in a block, in any order: an algorithm,
// its options, and those of the rule. It adds the rule to those of the zone, or of an override, which
// has a JSON pointer.
func (p *Parser) ParseRule(override string, to *[]*config.Rule, rate caddyfile.Token, rest []caddyfile.Token) error {
	from, window, varies, err := CutLimitFrom(rate.Text)
	var limit int64
	if !varies {
		limit, window, err = config.ParseRate(rate.Text)
	}
	if err != nil {
		if spaced := Spaced(append([]caddyfile.Token{rate}, rest...)); spaced != nil {
			return spaced
		}
		return option.At(rate, err)
	}
	r := &ruleParser{rule: &config.Rule{Limit: limit, LimitFrom: from, Window: window}, rate: rate}
	if err := r.parse(rest); err != nil {
		return err
	}
	if varies && r.rule.Limit == 0 {
		return option.At(rate, fmt.Errorf("rate %q: want else <count> after it, for requests that bring no limit", rate.Text))
	}
	r.pointer = fmt.Sprintf("%s/rules/%d", override, len(*to))
	p.lines[r.pointer] = rate
	p.rules, *to = append(p.rules, r), append(*to, r.rule)
	return nil
}

// words returns the words of a rule.
func (r *ruleParser) words() option.Set {
	return option.Set{One: map[string]option.Parse{
		"name":   option.Checked(&r.rule.Name, "a name after it", config.CheckName),
		"block":  r.parseBlock,
		"notify": r.parseNotify,

		"max_wait": option.Duration(&r.rule.MaxWait),
		"else":     r.parseElse,

		"algorithm": r.parseAlgorithm,
	}}
}

// parse parses what follows the rate. What is no word of a rule is left to the algorithm.
func (r *ruleParser) parse(tokens []caddyfile.Token) error {
	words := r.words()
	for d := caddyfile.NewDispenser(tokens); d.Next(); {
		switch word := d.Val(); {
		case words.Has(word):
			if err := words.Read(d); err != nil {
				return err
			}
		case !slices.Contains(option.Modules(algorithms.Namespace), word):
			if _, _, err := config.ParseRate(word); err == nil && len(r.options) == 0 {
				return d.Errf("rate %q beside %s: want a line rule %s in a zone for each rate", word, r.rate.Text, word)
			}
			r.options = append(r.options, d.Token())
		default:
			if err := r.setAlgorithm(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// parseAlgorithm parses algorithm <name>, which says the same as the name alone.
func (r *ruleParser) parseAlgorithm(d *caddyfile.Dispenser) error {
	if !d.NextArg() || !slices.Contains(option.Modules(algorithms.Namespace), d.Val()) {
		return d.Errf("algorithm %q: %s", d.Val(), option.Want(d.Val(), option.Modules(algorithms.Namespace)))
	}
	return r.setAlgorithm(d)
}

// setAlgorithm sets the algorithm, whose name is d's current token.
func (r *ruleParser) setAlgorithm(d *caddyfile.Dispenser) error {
	if r.algorithm != "" {
		return d.Errf("algorithm %s beside %s: want one", d.Val(), r.algorithm)
	}
	r.algorithm = d.Val()
	return nil
}

// parseNotify parses notify <percent>..., up to the next word of the rule.
func (r *ruleParser) parseNotify(d *caddyfile.Dispenser) error {
	for d.NextArg() {
		percent, err := strconv.Atoi(strings.TrimSuffix(d.Val(), "%"))
		if strings.HasPrefix(d.Val(), "{") && !isBrace(d.Token()) {
			return d.Errf("notify %q: want percentages, such as notify 50 80 100", d.Val())
		}
		if err != nil || !option.IsWhole(strings.TrimSuffix(d.Val(), "%")) {
			d.Prev()
			break
		}
		r.rule.Notify = append(r.rule.Notify, percent)
	}
	if r.rule.Notify == nil {
		return d.Errf("notify: want percentages after it, such as notify 50 80 100")
	}
	return nil
}

// parseBlock parses block <duration>..., up to the next word of the rule.
func (r *ruleParser) parseBlock(d *caddyfile.Dispenser) error {
	var one caddy.Duration
	if err := option.Duration(&one)(d); err != nil {
		return err
	}
	for r.rule.Block = (config.Block{one}); d.NextArg(); {
		n, err := caddy.ParseDuration(d.Val())
		if err != nil {
			d.Prev()
			break
		}
		r.rule.Block = append(r.rule.Block, caddy.Duration(n))
	}
	return nil
}

// parseElse parses else <count>.
func (r *ruleParser) parseElse(d *caddyfile.Dispenser) error {
	if r.rule.LimitFrom == "" {
		return d.Errf("else: want it only after a limit from the request, such as rule {http.auth.user.limit}/1m else 100")
	}
	return option.Whole(&r.rule.Limit, 1, option.Max)(d)
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
			if at := p.lines[r.pointer]; at.File == r.rate.File && at.Line == r.rate.Line { // not the words after an override that failed
				delete(p.lines, r.pointer) // what else is wrong with it may follow from this
			}
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
		err := u.UnmarshalCaddyfile(d)
		if unknown, ok := errors.AsType[*algorithms.UnknownOption](err); ok {
			return option.At(unknown.Token, meant(unknown))
		} else if err != nil {
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

// meant returns the error of a word of a rule's line that is neither one of the rule nor an option of its algorithm: it
// is an option of others, or misspelt.
func meant(e *algorithms.UnknownOption) error {
	word := e.Token.Text
	if name, value, _ := strings.Cut(word, "="); option.Bare(word) != word && (len(withOption(option.Bare(word))) > 0 || slices.Contains(ruleWords, name)) {
		return fmt.Errorf("%q: did you mean %s", word, strings.TrimSpace(option.Bare(word)+" "+value))
	}
	if with := withOption(word); len(with) > 0 {
		return fmt.Errorf("%s: %s has no such option: want %s for it", word, e.Algorithm, option.Or(with))
	}
	if err := option.OwnLine(word, InZone, "a site's rate_limit"); err != nil {
		return err
	}
	if near := option.Nearest(word, slices.Concat(option.Modules(algorithms.Namespace), e.Options, ruleWords)); near != "" {
		return fmt.Errorf("%q: did you mean %s", word, near)
	}
	known := "none"
	if len(e.Options) > 0 {
		known = option.Or(e.Options)
	}
	return fmt.Errorf("%q is neither an option of %s nor an algorithm: want an option (%s) or an algorithm (%s)", word, e.Algorithm, known, option.Or(option.Modules(algorithms.Namespace)))
}

// CutLimitFrom cuts the text of a rule line's rate, such as {http.auth.user.limit}/1m, into
// a limit_from and a window. It returns false for a rate without placeholders.
func CutLimitFrom(s string) (from string, window config.Window, ok bool, err error) {
	at := strings.LastIndexByte(s, '/')
	if !strings.HasPrefix(s, "{") {
		return "", config.Window{}, false, nil
	}
	if at < 0 || !strings.HasSuffix(s[:at], "}") {
		return "", config.Window{}, true, fmt.Errorf("rate %q: want {<placeholder>}/<window>, such as {http.auth.user.limit}/1m", s)
	}
	window, err = config.ParseWindow(s[at+1:])
	if err != nil {
		return "", config.Window{}, true, fmt.Errorf("rate %q: window %q: %w", s, s[at+1:], err)
	}
	return s[:at], window, true, nil
}
