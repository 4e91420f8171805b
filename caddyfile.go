package diana

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/option"
)

func init() {
	// Not RegisterHandlerDirective: that one takes the matcher away before we
	// see it, and the name of a one-line zone is made from it too.
	httpcaddyfile.RegisterDirective("rate_limit", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("rate_limit", httpcaddyfile.Before, "basic_auth")
	httpcaddyfile.RegisterGlobalOption("rate_limit", parseGlobalOption)
}

// directive is a rate_limit in a site. It has two forms:
//
//	rate_limit [<matcher>] [<key>] <rate> [<algorithm>] [<rule options>] {
//		name <name>
//		<zone options>
//		<handler options>
//	}
//
//	rate_limit [<matcher>] {
//		zone <name> {
//			<zone options>
//		}
//		<handler options>
//	}
type directive struct {
	httpcaddyfile.Helper
	at      caddyfile.Token
	matcher caddy.ModuleMap
	handler Handler
	zones   map[string]caddyfile.Token
}

func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next() // the directive's name
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, option.Located(h.Dispenser, err)
	}
	h.Next() // once more: the dispenser was reset
	c := &directive{Helper: h, at: h.Token(), matcher: matcher, zones: make(map[string]caddyfile.Token)}
	parse := c.parseBlock
	if h.CountRemainingArgs() > 0 {
		parse = c.parseLine
	}
	if err := parse(); err != nil {
		return nil, err
	}
	return h.NewRoute(matcher, &c.handler), nil
}

// options are those of the handler.
func (c *directive) options() *option.Set {
	return &option.Set{One: map[string]option.Parse{
		"headers":         option.Checked(&c.handler.Headers, "draft, legacy, all or off", checkHeaders),
		"jitter":          fraction(&c.handler.Jitter),
		"log_key":         option.Flag(&c.handler.LogKey),
		"disable_metrics": option.Flag(&c.handler.DisableMetrics),
		"distributed":     c.parseDistributed,
		"storage":         c.parseStorage,
		"sweep_interval":  option.Duration(&c.handler.SweepInterval),
	}}
}

func (c *directive) parseBlock() error {
	s := c.options()
	s.Many = map[string]option.Parse{"zone": c.parseZone}
	zones := newZoneParser(c.Helper, c.at).options()
	s.Unknown = func(word string) error {
		if zones.Has(word) {
			return fmt.Errorf("%s is an option of a zone: want it in zone <name> { … }", word)
		}
		return nil
	}
	if err := s.Block(c.Dispenser); err != nil {
		return err
	}
	if len(c.zones) == 0 {
		return option.At(c.at, errors.New("rate_limit: want a rate, such as rate_limit {client_ip} 10/s, or a block with a zone"))
	}
	return nil
}

func (c *directive) parseZone(d *caddyfile.Dispenser) error {
	z := newZoneParser(c.Helper, d.Token())
	if err := option.Text(&z.zone.Name, "a name")(d); err != nil {
		return err
	}
	at := d.Token()
	if d.NextArg() {
		return d.Errf("zone %s: unexpected %q: want one name", z.zone.Name, d.Val())
	}
	name := safeName(z.zone.Name)
	if first, ok := c.zones[name]; ok {
		return d.Errf("zone %s stands twice, first at %s:%d: want another name", name, first.File, first.Line)
	}
	c.zones[name] = at
	if err := z.options().Block(d); err != nil {
		return err
	}
	if z.zone.inherited() {
		return c.inherit(z, name)
	}
	if err := checkName(z.zone.Name); err != nil {
		return option.At(at, err)
	}
	return c.add(z)
}

// inherit takes a zone that is written for another plugin.
func (c *directive) inherit(z *zoneParser, safe string) error {
	name := z.zone.Name
	z.zone.Name = safe
	if err := z.check(); err != nil {
		return err
	}
	z.zone.Name = "" // it is its key
	if c.handler.RateLimits == nil {
		c.handler.RateLimits = make(map[string]*Zone)
	}
	c.handler.RateLimits[name] = z.zone
	return nil
}

// add takes a zone that was read to its end.
func (c *directive) add(z *zoneParser) error {
	if err := z.check(); err != nil {
		return err
	}
	c.handler.Zones = append(c.handler.Zones, z.zone)
	return nil
}

// lineOptions are those of the block of the one-line form.
func (c *directive) lineOptions(z *zoneParser) *option.Set {
	s := z.options()
	maps.Copy(s.One, c.options().One)
	s.One["name"] = option.Checked(&z.zone.Name, "a name", checkName)
	s.Unknown = func(word string) error {
		switch {
		case word == "zone":
			return errors.New("a zone beside a rate on the line: want one or the other")
		case len(algorithms.WithOption(word)) > 0:
			return fmt.Errorf("%s is an option of a rule: want it on the line, after the rate", word)
		}
		return nil
	}
	return s
}

// parseLine reads the one-line form.
func (c *directive) parseLine() error {
	z := newZoneParser(c.Helper, c.at)
	s := c.lineOptions(z)
	args := c.RemainingArgsAsTokens()
	at, err := rateAt(args)
	if err != nil {
		return err
	}
	if at > 0 {
		z.zone.Key = []string{args[0].Text}
		s.Given("key", args[0])
		if err := z.checkOptions(); err != nil {
			return option.At(args[0], err)
		}
	}
	rest, err := c.parseSize(z.zone, args[at], args[at+1:])
	if err != nil {
		return err
	}
	rule, err := z.parseRule(args[at], rest)
	if err != nil {
		return err
	}
	z.zone.Rules = append(z.zone.Rules, rule)
	if err := s.Block(c.Dispenser); err != nil {
		return err
	}
	if err := z.chooseAlgorithms(); err != nil {
		return err
	}
	if z.zone.Name == "" {
		z.zone.Name = c.autoName(z.zone)
	}
	return c.add(z)
}

// rateAt returns which of the arguments on a line is the rate: the first, or
// the second after a key.
func rateAt(args []caddyfile.Token) (int, error) {
	isRate := func(i int) bool {
		if i >= len(args) {
			return false
		}
		_, _, err := parseRate(args[i].Text)
		return err == nil
	}
	switch first := args[0].Text; {
	case isRate(0) && len(args) == 2 && strings.HasPrefix(args[1].Text, "{"):
		return 0, option.At(args[1], fmt.Errorf("%s: want the key before the rate", args[1].Text))
	case isRate(0):
		return 0, nil
	case isRate(1):
		return 1, nil
	case isRate(2):
		return 0, option.At(args[1], fmt.Errorf("%q: want at most one key on the line; more stand in a block: key %s %s", args[1].Text, first, args[1].Text))
	case len(args) == 1 && strings.HasPrefix(first, "{"):
		return 0, option.At(args[0], fmt.Errorf("%s: want a rate after the key, such as 10/s", first))
	case len(args) == 1 || first != "" && first[0] >= '0' && first[0] <= '9':
		_, _, err := parseRate(first)
		return 0, option.At(args[0], err)
	}
	_, _, err := parseRate(args[1].Text)
	return 0, option.At(args[1], err)
}

// autoNames is where [directive.autoName] keeps what it gave, in the state of
// an adaptation.
const autoNames = "rate_limit.names"

// autoName names the zone of a one-line directive by what it is, not by where
// it stands, so that moving lines about does not rename it and lose its counts.
// The same line read again, as a snippet's is for each of its imports, has the
// same name; an equal one elsewhere has its own.
func (c *directive) autoName(z *Zone) string {
	// Named routes have a state of their own, in which the names given to
	// sites are not seen.
	def := definitionOf(c.matcher, z, c.IsNamedRoute())
	name := nameOf(c.matcher, z, c.IsNamedRoute())

	given, _ := c.State[autoNames].(map[string][]string)
	if given == nil {
		given = make(map[string][]string)
		c.State[autoNames] = given
	}
	all, _ := json.Marshal(z)
	place := fmt.Sprintf("%s:%d %s %s", c.at.File, c.at.Line, def, all)
	n := 0
	for n < len(given[name]) && given[name][n] != place {
		n++
	}
	if n == len(given[name]) {
		given[name] = append(given[name], place)
	}
	if n > 0 {
		name += "-" + strconv.Itoa(n+1)
	}
	return name
}

// definitionOf is what an automatic name is made from.
func definitionOf(matcher caddy.ModuleMap, z *Zone, inNamedRoute bool) []byte {
	key := z.Key
	if len(key) == 0 {
		key = Parts{expandShorthands("{client_ip}")}
	}
	def, _ := json.Marshal([]any{matcher, z.MatcherSetsRaw, key, z.Rules, inNamedRoute})
	return def
}

func nameOf(matcher caddy.ModuleMap, z *Zone, inNamedRoute bool) string {
	return fmt.Sprintf("auto-%x", sha256.Sum256(definitionOf(matcher, z, inNamedRoute)))[:len("auto-")+8]
}

// fraction reads a number from 0 to 1.
func fraction(dst *float64) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		var s string
		return option.Checked(&s, "a number from 0 to 1, such as 0.1", func(v string) (err error) {
			if *dst, err = strconv.ParseFloat(v, 64); err != nil || !(*dst >= 0 && *dst <= 1) {
				return fmt.Errorf("jitter %q: want a number from 0 to 1, such as 0.1", v)
			}
			return nil
		})(d)
	}
}
