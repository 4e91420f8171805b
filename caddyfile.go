package diana

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/autoname"
	"github.com/dianalimiter/diana/internal/configure/braces"
	"github.com/dianalimiter/diana/internal/configure/caddyfields"
	"github.com/dianalimiter/diana/internal/configure/compat"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/configure/placeholders"
	"github.com/dianalimiter/diana/internal/configure/zonefile"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/usage/settle"
)

// parseQuota parses the directive rate_limit_quota [<matcher>] [<zone>...].
func parseQuota(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next()
	q := &QuotaHandler{Zones: h.RemainingArgs()}
	if h.NextBlock(0) {
		return nil, h.Errf("rate_limit_quota: %q: want nothing but a matcher and names of zones, such as rate_limit_quota /quota budget", h.Val())
	}
	return q, nil
}

// directive is a directive rate_limit, or diana. It has two forms:
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
	open    error // a zone without a block; nil: there is none
	compact bool  // whether the one-line form is that of github.com/RussellLuo/caddy-ext/ratelimit
}

func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	h.Next() // the directive's name
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, zonefile.LocatedAt(h.Token(), err)
	}
	h.Next() // the directive's name again: ExtractMatcherSet resets the dispenser
	c := &directive{Helper: h, at: h.Token(), matcher: matcher, zones: make(map[string]caddyfile.Token)}
	if c.optionTwice() {
		return nil, report(h.Option(option.Reported), option.At(c.at, errBothOptions))
	}
	parse := c.parseBlock
	if h.CountRemainingArgs() > 0 {
		parse = c.parseLine
	}
	err = option.Semicolons(h.Dispenser)
	if h.Next(); err == nil {
		err = parse()
	}
	if err != nil {
		return nil, report(h.Option(option.Reported), option.Join(braces.Unclosed(c.at.File, c.at), err))
	}
	if c.at.Text == names.Always {
		return h.NewRoute(matcher, &dianaHandler{c.handler}), nil
	}
	return h.NewRoute(matcher, &c.handler), nil
}

// options returns the options of the handler.
func (c *directive) options() *option.Set {
	return &option.Set{One: map[string]option.Parse{
		"headers":         option.Checked(&c.handler.Headers, wantHeaders, checkHeaders),
		"jitter":          parseJitter(&c.handler.Jitter),
		"log_key":         option.Flag(&c.handler.LogKey),
		"disable_metrics": option.Flag(&c.handler.DisableMetrics),
		"distributed":     c.parseDistributed,
		"storage":         c.parseStorage,
		"sweep_interval":  option.Duration(&c.handler.SweepInterval),
	}}
}

// blockOptions returns the options of the form with zones.
func (c *directive) blockOptions() *option.Set {
	s := c.options()
	s.Many, s.Within = map[string]option.Parse{"zone": c.parseZone}, []string{"a zone", "the global option " + names.Usual()}
	s.Unknown = func(word string) error {
		if word == "store" {
			return option.ErrStoreInSite
		}
		return nil
	}
	return s
}

func (c *directive) parseBlock() error {
	block, _ := option.OpensBlock(c.Dispenser)
	if err := c.blockOptions().Block(c.Dispenser); err != nil {
		return cmp.Or(c.open, err) // what else is wrong follows from it
	}
	if !block {
		return option.At(c.at, fmt.Errorf("%[1]s: want a rate, such as %[1]s {client_ip} 10/s, or a block with a zone", c.at.Text))
	}
	return nil
}

func (c *directive) parseZone(d *caddyfile.Dispenser) error {
	z := zonefile.New(c.Helper, d.Token())
	invalid := option.Text(&z.Zone.Name, "a name")(d)
	at, name := d.Token(), autoname.Safe(z.Zone.Name)
	first, twice := c.zones[name]
	switch {
	case invalid != nil:
	case d.NextArg():
		invalid = d.Errf("zone %s: unexpected %q: want one name, and its options in a block, such as rule 10/s", z.Zone.Name, d.Val())
		d.RemainingArgs()
	case twice:
		invalid = d.Errf("zone %s is given twice, first at %s:%d: want another name", name, first.File, first.Line)
	default:
		c.zones[name] = at
	}
	if block, _ := option.OpensBlock(d); !block && invalid == nil {
		c.open = d.Errf("zone %s: no rule: want { after its name, on the same line, and its options below", z.Zone.Name)
		return c.open
	} else if !block {
		return invalid
	}
	invalid = option.Join(invalid, z.Options().Block(d))
	if compat.HasEvents(z.Zone) {
		return option.Join(invalid, c.addCompat(z, name))
	}
	if z.Zone.Name != "" {
		invalid = option.Join(invalid, option.At(at, config.CheckName(z.Zone.Name)))
	}
	z.Zone.Name = name
	return option.Join(invalid, c.add(z))
}

// addCompat adds a zone with the options of github.com/mholt/caddy-ratelimit to the
// handler.
func (c *directive) addCompat(z *zonefile.Parser, safe string) error {
	name := z.Zone.Name
	z.Zone.Name = safe
	if err := z.Check(c.provision); err != nil {
		return err
	}
	z.Zone.Name = "" // the key of the map has it
	if c.handler.RateLimits == nil {
		c.handler.RateLimits = make(map[string]*config.Zone)
	}
	c.handler.RateLimits[name] = z.Zone
	return nil
}

// add checks a zone and adds it to the handler.
func (c *directive) add(z *zonefile.Parser) error {
	if err := z.Check(c.provision); err != nil {
		return err
	}
	c.handler.Zones = append(c.handler.Zones, z.Zone)
	return nil
}

// lineOptions returns the options of the block of the one-line form.
func (c *directive) lineOptions(z *zonefile.Parser) *option.Set {
	s := z.Options()
	maps.Copy(s.One, c.options().One)
	s.One["name"] = option.Checked(&z.Zone.Name, "a name", config.CheckName)
	s.Unknown = func(word string) error {
		if word == "zone" {
			return errors.New("a zone beside a rate on the line: want one or the other")
		}
		return nil
	}
	return s
}

// parseLine parses the one-line form.
func (c *directive) parseLine() error {
	z := zonefile.New(c.Helper, c.at)
	s := c.lineOptions(z)
	invalid := c.parseArgs(z, s, c.RemainingArgsAsTokens())
	invalid = option.Join(invalid, s.Block(c.Dispenser))
	if invalid == nil {
		invalid = z.ChooseAlgorithms()
	}
	if invalid != nil {
		return invalid
	}
	if z.Zone.Name == "" {
		z.Zone.Name = c.autoName(z.Zone)
	}
	return c.add(z)
}

// parseArgs parses the line of the one-line form.
func (c *directive) parseArgs(z *zonefile.Parser, s *option.Set, args []caddyfile.Token) error {
	at, err := rateAt(args)
	if err != nil {
		return err
	}
	if at > 0 {
		z.Zone.Key = []string{args[0].Text}
		s.Given("key", args[0])
		if word := args[0].Text; !strings.Contains(word, "{") {
			placeholder, constant := "{client_ip}", word
			if meant := placeholders.OfConstant(word); meant != "" {
				placeholder, constant = meant, "everyone"
			}
			return option.At(args[0], fmt.Errorf("key %q: one limit for all clients: want a placeholder, such as %s, or a zone, such as zone <name> { key %s … }", word, placeholder, constant))
		}
		if err := z.Zone.CheckOptions(settle.Responses{}); err != nil {
			return option.At(args[0], err)
		}
	}
	rest, err := c.parseSize(z.Zone, s, args[at], args[at+1:])
	if err != nil {
		return err
	}
	return z.ParseRule("", &z.Zone.Rules, args[at], rest)
}

// rateAt returns the index of the rate among the arguments of the one-line form: 0, or
// 1 after a key.
func rateAt(args []caddyfile.Token) (int, error) {
	for _, t := range args {
		if _, _, err := config.ParseRate(t.Text); err == nil || t.Quoted() {
			break
		}
		if err := option.OwnLine(t.Text, zonefile.InZone, inSite()); err != nil {
			return 0, option.At(t, err)
		}
	}
	isRate := func(i int) bool {
		if i >= len(args) {
			return false
		}
		_, _, err := config.ParseRate(args[i].Text)
		return err == nil
	}
	for i := range min(2, len(args)) {
		if err := zonefile.Spaced(args[i:]); err != nil && !isRate(0) && !isRate(1) {
			return 0, err
		}
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
	case isLimitFrom(args[min(1, len(args)-1)].Text):
		return 0, option.At(args[0], fmt.Errorf("rate %q: a limit from the request: want it in a zone, such as zone <name> { rule {http.auth.user.limit}/1m else 100 }", args[min(1, len(args)-1)].Text))
	case len(args) == 1 && strings.HasPrefix(first, "{"):
		return 0, option.At(args[0], fmt.Errorf("%s: want a rate after the key, such as 10/s", first))
	case len(args) == 1 || first != "" && first[0] >= '0' && first[0] <= '9':
		_, _, err := config.ParseRate(first)
		return 0, option.At(args[0], err)
	}
	_, _, err := config.ParseRate(args[1].Text)
	return 0, option.At(args[1], err)
}

// isLimitFrom reports whether a word is a rate whose limit comes from the request.
func isLimitFrom(s string) bool {
	_, _, varies, err := zonefile.CutLimitFrom(s)
	return varies && err == nil
}

// autoNames is the key, in the state of an adaptation, of the automatic names assigned
// so far.
const autoNames = "rate_limit.names"

// autoName returns the name of the zone of a one-line directive. It depends on its matcher, key and site, and not
// on the position or the rate, so that moving the line or the site, or another rate, neither renames the zone nor resets
// its counts. Each import of a snippet gets the same name, except for
// a compact line; lines of one matcher and key at different positions get different names, by their order.
func (c *directive) autoName(z *config.Zone) string {
	// Named routes have a state of their own, without the names assigned in sites.
	site := c.site()
	if site == "" && c.IsNamedRoute() { // one snippet in two named routes, which nothing but its arguments tells apart
		rules, _ := json.Marshal(z.Rules)
		site = string(rules)
	}
	def := autoname.Definition(c.matcher, z, c.IsNamedRoute(), site)
	name := autoname.Of(def)

	given, _ := c.State[autoNames].(map[string][]string)
	if given == nil {
		given = make(map[string][]string)
		c.State[autoNames] = given
	}
	all, _ := json.Marshal(z)
	place := fmt.Sprintf("%s:%d %s %s", c.at.File, c.at.Line, def, all)
	n := 0
	for n < len(given[name]) && (c.compact || given[name][n] != place) { // each compact line has its own counts
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

// site returns the first address of the site, or the name of the named route, in which the
// directive is written; empty: it is unknown, or imported from a snippet or a file, and not compact.
func (c *directive) site() string {
	site := caddyfields.SiteOf(c.Helper)
	if !c.compact && (site.File != c.at.File || site.Line > c.at.Line) {
		return "" // a snippet stands before the sites that import it
	}
	return site.Text
}

// parseJitter parses jitter <fraction>.
func parseJitter(dst *float64) option.Parse {
	return option.Value(dst, "a number from 0 to 1, such as 0.1", func(v string) (float64, bool) {
		n, err := strconv.ParseFloat(v, 64)
		return n, err == nil && n >= 0 && n <= 1
	})
}

// parseDistributed parses distributed and its block.
func (c *directive) parseDistributed(d *caddyfile.Dispenser) error {
	at := d.Token()
	v := new(compat.Distributed)
	c.handler.Distributed = v
	s := &option.Set{One: map[string]option.Parse{
		"read_interval":  option.Duration(&v.ReadInterval),
		"write_interval": option.Duration(&v.WriteInterval),
		"purge_age":      option.Duration(&v.PurgeAge),
	}}
	if err := s.Block(d); err != nil {
		return err
	}
	if len(c.stores()) == 0 {
		return option.At(at, compat.NotShared())
	}
	return nil
}

// parseStorage parses storage <module...>. It keeps the name of the module, which need
// not exist, and drops the options, which may contain passwords.
func (c *directive) parseStorage(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Errf("storage: want the name of a module")
	}
	var err error
	c.handler.Storage, err = json.Marshal(map[string]string{"module": d.Val()})
	for d.Next() { // to the end of the block
	}
	return err
}

// parseSize parses [<zone_size> [<reject_status>]] after the rate, as
// github.com/RussellLuo/caddy-ext/ratelimit has it, and returns the other tokens.
func (c *directive) parseSize(z *config.Zone, s *option.Set, rate caddyfile.Token, rest []caddyfile.Token) ([]caddyfile.Token, error) {
	if !compat.SimpleRate.MatchString(rate.Text) || len(z.Key) == 0 {
		return rest, nil
	}
	if len(rest) == 0 || isNumber(rest[0].Text) {
		if err := compat.CheckKey(z.Key[0]); err != nil {
			return nil, option.At(rate, err)
		}
		z.KeyMissing, z.KeyRepeated, c.compact = compat.KeyMissing(z.Key[0]), key.RepeatedJoin, true
	}
	if len(rest) > 0 && isNumber(rest[0].Text) {
		s.Given("max_keys", rest[0])
		if err := option.Whole(&z.MaxKeys, 0, config.MaxMaxKeys)(valueOf("zone_size", rest[0])); err != nil {
			return nil, err
		}
		rest = rest[1:]
		if len(rest) > 0 && isNumber(rest[0].Text) {
			if err := option.Whole(&c.handler.RejectStatus, 200, 599)(valueOf("reject_status", rest[0])); err != nil {
				return nil, err
			}
			if err := checkRejectStatus(c.handler.RejectStatus); err != nil {
				return nil, option.At(rest[0], err)
			}
			rest = rest[1:]
		}
	}
	return rest, nil
}

func isNumber(s string) bool {
	_, err := strconv.Atoi(s)
	return err == nil
}

// valueOf returns a dispenser of an option with this name and value.
func valueOf(name string, value caddyfile.Token) *caddyfile.Dispenser {
	option := value.Clone()
	option.Text = name
	d := caddyfile.NewDispenser([]caddyfile.Token{option, value})
	d.Next()
	return d
}
