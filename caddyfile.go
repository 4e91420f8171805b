package diana

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/rules"
)

func init() {
	// RegisterHandlerDirective would consume the matcher, from which the automatic name
	// of a one-line zone is derived too.
	httpcaddyfile.RegisterDirective("rate_limit", parseDirective)
	httpcaddyfile.RegisterDirectiveOrder("rate_limit", httpcaddyfile.Before, "basic_auth")
	httpcaddyfile.RegisterGlobalOption("rate_limit", parseGlobalOption)
	httpcaddyfile.RegisterHandlerDirective("rate_limit_page", parsePage)
	httpcaddyfile.RegisterDirectiveOrder("rate_limit_page", httpcaddyfile.After, "forward_auth")
}

// parsePage parses the directive rate_limit_page [<matcher>], which has no options.
func parsePage(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next()
	if h.NextArg() || h.NextBlock(0) {
		return nil, h.Errf("rate_limit_page: %q: want nothing but a matcher, such as rate_limit_page /limits*", h.Val())
	}
	return new(PageHandler), nil
}

// parseGlobalOption parses the global option:
//
//	rate_limit {
//		store redis <address...> {
//			<store options>
//		}
//		max_keys <n>
//		headers  draft|legacy|all|off
//		rules    redis|http|file <source> {
//			interval <duration>
//		}
//	}
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next()
	at := d.Token()
	if existing != nil {
		return nil, d.Errf("rate_limit stands twice among the global options: want all of it in one block")
	}
	var app App
	s := &option.Set{
		One: map[string]option.Parse{
			"max_keys": option.Whole(&app.MaxKeys, 1, option.Max),
			"headers":  option.Checked(&app.Headers, "draft, legacy, all or off", config.CheckHeaders),
			"rules":    app.parseRules,
		},
		Many: map[string]option.Parse{"store": app.parseStore},
	}
	if err := s.Block(d); err != nil {
		return nil, err
	}
	if err := option.End(d, at.Text); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: "rate_limit", Value: caddyconfig.JSON(&app, nil)}, nil
}

// parseStore parses store redis <address...> and its block.
func (a *App) parseStore(d *caddyfile.Dispenser) error {
	at := d.Token()
	const want = "redis and its address, such as store redis localhost:6379"
	if !d.NextArg() {
		return d.Errf("store: want %s", want)
	}
	if v := d.Val(); v != "redis" {
		if strings.Contains(v, "@") { // a URL with a password, perhaps
			return d.Errf("store: want %s", want)
		}
		return d.Errf("store %q: want %s", v, want)
	}
	c := &config.RedisStore{Addresses: d.RemainingArgs()}
	if len(c.Addresses) == 0 {
		return d.Errf("store redis: want an address, such as localhost:6379")
	}
	s := storeOptions(c)
	if err := s.Block(d); err != nil {
		return err
	}
	if err := c.CheckUnresolved(true); err != nil {
		return option.At(at, fmt.Errorf("store: %w", err))
	}
	for _, other := range a.Stores {
		if name := cmp.Or(c.Name, config.DefaultStoreName); name == cmp.Or(other.Name, config.DefaultStoreName) {
			return option.At(at, fmt.Errorf("store %q stands twice: want another name", name))
		}
	}
	a.Stores = append(a.Stores, c)
	return nil
}

// storeOptions returns the options of a store's block.
func storeOptions(c *config.RedisStore) *option.Set {
	return &option.Set{
		One: map[string]option.Parse{
			"name":           option.Text(&c.Name, "a name"),
			"username":       option.Text(&c.Username, "a user"),
			"password":       option.Secret(&c.Password),
			"db":             option.Whole(&c.DB, 0, math.MaxInt32),
			"cluster":        option.Flag(&c.Cluster),
			"sentinel":       parseSentinel(c),
			"tls":            parseTLS(c),
			"key_prefix":     option.Text(&c.KeyPrefix, "a prefix"),
			"key_secret":     option.Secret(&c.KeySecret),
			"timeout":        option.Duration(&c.Timeout),
			"dial_timeout":   option.Duration(&c.DialTimeout),
			"pool_size":      option.Whole(&c.PoolSize, 1, math.MaxInt32),
			"on_failure":     option.Text(&c.OnFailure, "local, allow or deny"),
			"fallback_share": option.Text(&c.FallbackShare, "auto, or a fraction such as 0.25"),
			"lease":          option.Duration(&c.Lease),
		},
		Check: func() error { return c.CheckUnresolved(false) },
	}
}

func parseSentinel(c *config.RedisStore) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		c.Sentinel = new(config.Sentinel)
		if err := option.Text(&c.Sentinel.Master, "the name of the master")(d); err != nil {
			return err
		}
		s := &option.Set{One: map[string]option.Parse{
			"username": option.Text(&c.Sentinel.Username, "a user"),
			"password": option.Secret(&c.Sentinel.Password),
		}}
		return s.Block(d)
	}
}

func parseTLS(c *config.RedisStore) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		c.TLS = new(config.TLS)
		s := &option.Set{One: map[string]option.Parse{
			"ca":                   option.Text(&c.TLS.CA, "a file"),
			"cert":                 option.Text(&c.TLS.Cert, "a file"),
			"key":                  option.Text(&c.TLS.Key, "a file"),
			"server_name":          option.Text(&c.TLS.ServerName, "a name"),
			"insecure_skip_verify": option.Flag(&c.TLS.InsecureSkipVerify),
		}}
		return s.Block(d)
	}
}

// parseRules parses the rule source:
//
//	rules redis <key> {
//		address  <url>
//		interval <duration>
//	}
//	rules http <url> {
//		header   <name> <value>
//		interval <duration>
//	}
//	rules file <path> {
//		interval <duration>
//	}
//
// Any other name is a module that implements caddyfile.Unmarshaler.
func (a *App) parseRules(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.Errf("rules: want redis, http or file and where, such as rules redis diana:rules")
	}
	var (
		kind   = d.Val()
		source any
		where  option.Parse
		s      option.Set
	)
	switch kind {
	case "redis":
		r := new(rules.Redis)
		source, where = r, option.Text(&r.Key, "the name of a key")
		s.One = map[string]option.Parse{"address": option.Secret(&r.Address), "interval": option.Duration(&r.Interval)}
	case "http":
		h := new(rules.HTTP)
		source, where = h, option.Text(&h.URL, "an https URL")
		s.One = map[string]option.Parse{"interval": option.Duration(&h.Interval)}
		s.Many = map[string]option.Parse{"header": parseHeader(&h.Headers)}
		s.Unknown = func(word string) error {
			if word == "bearer_token" { // of earlier versions
				return errors.New(`bearer_token: want header Authorization "Bearer {env.TOKEN}"`)
			}
			return nil
		}
	case "file":
		f := new(rules.File)
		source, where = f, option.Text(&f.Path, "a path")
		s.One = map[string]option.Parse{"interval": option.Duration(&f.Interval)}
	default:
		at := d.Token()
		if _, err := caddy.GetModule(rules.Namespace + "." + kind); err != nil {
			return d.Errf("rules %q: want %s", kind, option.Or(rules.Names()))
		}
		m, err := caddyfile.UnmarshalModule(d, rules.Namespace+"."+kind)
		if err != nil {
			return option.LocatedAt(at, fmt.Errorf("rules %s: %w", kind, err))
		}
		a.RulesRaw = caddyconfig.JSONModuleObject(m, "source", kind, nil)
		return nil
	}
	if err := where(d); err != nil {
		return err
	}
	if err := s.Block(d); err != nil {
		return err
	}
	a.RulesRaw = caddyconfig.JSONModuleObject(source, "source", kind, nil)
	return nil
}

// directive is a rate_limit directive. It has two forms:
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
	h.Next() // the directive's name again: ExtractMatcherSet resets the dispenser
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

// options returns the options of the handler.
func (c *directive) options() *option.Set {
	return &option.Set{One: map[string]option.Parse{
		"headers":         option.Checked(&c.handler.Headers, "draft, legacy, all or off", config.CheckHeaders),
		"jitter":          parseJitter(&c.handler.Jitter),
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
	block, _ := option.OpensBlock(c.Dispenser)
	if err := s.Block(c.Dispenser); err != nil {
		return err
	}
	if !block {
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
	name := config.SafeName(z.zone.Name)
	if first, ok := c.zones[name]; ok {
		return d.Errf("zone %s stands twice, first at %s:%d: want another name", name, first.File, first.Line)
	}
	c.zones[name] = at
	if err := z.options().Block(d); err != nil {
		return err
	}
	if z.zone.HasEvents() {
		return c.addCompat(z, name)
	}
	if err := config.CheckName(z.zone.Name); err != nil {
		return option.At(at, err)
	}
	return c.add(z)
}

// addCompat adds a zone with the options of github.com/mholt/caddy-ratelimit to the
// handler.
func (c *directive) addCompat(z *zoneParser, safe string) error {
	name := z.zone.Name
	z.zone.Name = safe
	if err := z.check(); err != nil {
		return err
	}
	z.zone.Name = "" // the key of the map has it
	if c.handler.RateLimits == nil {
		c.handler.RateLimits = make(map[string]*config.Zone)
	}
	c.handler.RateLimits[name] = z.zone
	return nil
}

// add checks a zone and adds it to the handler.
func (c *directive) add(z *zoneParser) error {
	if err := z.check(); err != nil {
		return err
	}
	c.handler.Zones = append(c.handler.Zones, z.zone)
	return nil
}

// lineOptions returns the options of the block of the one-line form.
func (c *directive) lineOptions(z *zoneParser) *option.Set {
	s := z.options()
	maps.Copy(s.One, c.options().One)
	s.One["name"] = option.Checked(&z.zone.Name, "a name", config.CheckName)
	s.Unknown = func(word string) error {
		switch {
		case word == "zone":
			return errors.New("a zone beside a rate on the line: want one or the other")
		case word == "block", len(algorithms.WithOption(word)) > 0:
			return fmt.Errorf("%s is an option of a rule: want it on the line, after the rate", word)
		}
		return nil
	}
	return s
}

// parseLine parses the one-line form.
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
		if err := z.zone.CheckOptions(); err != nil {
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

// rateAt returns the index of the rate among the arguments of the one-line form: 0, or
// 1 after a key.
func rateAt(args []caddyfile.Token) (int, error) {
	isRate := func(i int) bool {
		if i >= len(args) {
			return false
		}
		_, _, err := config.ParseRate(args[i].Text)
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
	case isLimitFrom(args[min(1, len(args)-1)].Text):
		return 0, option.At(args[0], errors.New("a limit from the request: want it in a zone, such as zone <name> { rule {http.auth.user.limit}/1m else 100 }"))
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
	_, _, varies, err := config.CutLimitFrom(s)
	return varies && err == nil
}

// autoNames is the key, in the state of an adaptation, of the automatic names assigned
// so far.
const autoNames = "rate_limit.names"

// autoName returns the name of the zone of a one-line directive. It depends on the
// definition and not on the position, so that moving the line neither renames the zone
// nor resets its counts. Each import of a snippet gets the same name; equal lines at
// different positions get different names.
func (c *directive) autoName(z *config.Zone) string {
	// Named routes have a state of their own, without the names assigned in sites.
	def := config.DefinitionOf(c.matcher, z, c.IsNamedRoute())
	name := config.AutoName(c.matcher, z, c.IsNamedRoute())

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

// parseJitter parses jitter <fraction>.
func parseJitter(dst *float64) option.Parse {
	const want = "a number from 0 to 1, such as 0.1"
	return option.Checked(new(string), want, func(v string) (err error) {
		if *dst, err = strconv.ParseFloat(v, 64); err != nil || !(*dst >= 0 && *dst <= 1) {
			return fmt.Errorf("jitter %q: want %s", v, want)
		}
		return nil
	})
}

// zoneParser parses a zone.
type zoneParser struct {
	httpcaddyfile.Helper
	zone  *config.Zone
	rules []*ruleParser           // of the zone and of its overrides
	lines map[any]caddyfile.Token // the positions of rules and overrides
	at    caddyfile.Token
}

func newZoneParser(h httpcaddyfile.Helper, at caddyfile.Token) *zoneParser {
	return &zoneParser{Helper: h, zone: new(config.Zone), lines: make(map[any]caddyfile.Token), at: at}
}

// options returns the options of a zone.
func (p *zoneParser) options() *option.Set {
	z := p.zone
	return &option.Set{
		One: map[string]option.Parse{
			"key":                p.parseKey,
			"key_missing":        option.Text(&z.KeyMissing, "client_ip, share, skip or deny"),
			"ipv4_prefix":        option.Bits(&z.IPv4Prefix, 32),
			"ipv6_prefix":        option.Bits(&z.IPv6Prefix, 128),
			"algorithm":          option.Checked(&z.Algorithm, "the name of an algorithm", checkAlgorithm),
			"in_flight":          option.Whole(&z.InFlight, 1, option.Max),
			"prevent_duplicates": p.parseDuplicates,
			"cost":               option.Text(&z.Cost, "a whole number of at least 1, or a placeholder"),
			"settle":             option.Text(&z.Settle, "a placeholder, such as {http.response.header.X-Tokens}"),
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

// check checks the complete zone. Its error has the line of the invalid rule or
// override, or otherwise of the zone.
func (p *zoneParser) check() error {
	if err := p.chooseAlgorithms(); err != nil {
		return err
	}
	err := checkZone(p.zone)
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

func (p *zoneParser) parseKey(d *caddyfile.Dispenser) error {
	if p.zone.Key = d.RemainingArgs(); len(p.zone.Key) == 0 {
		return d.Errf("key: want one part or more, such as {client_ip}")
	}
	return nil
}

// parseDuplicates parses prevent_duplicates [<window>] [body].
func (p *zoneParser) parseDuplicates(d *caddyfile.Dispenser) error {
	pd := new(config.PreventDuplicates)
	p.zone.PreventDuplicates = pd
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

func (p *zoneParser) parseStatuses(d *caddyfile.Dispenser) error {
	for d.NextArg() {
		p.zone.CountStatus = append(p.zone.CountStatus, config.Value(d.Val()))
	}
	if len(p.zone.CountStatus) == 0 {
		return d.Errf("count_status: want one status or more, such as 401 or 4xx")
	}
	return nil
}

// parseRespond parses respond [<status>] [<body>] and its block.
func (p *zoneParser) parseRespond(d *caddyfile.Dispenser) error {
	r := new(config.Respond)
	p.zone.Respond = r
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
		Many: map[string]option.Parse{"header": parseHeader(&r.Headers)},
	}
	return s.Block(d)
}

// parseHeader parses header <name> <value>. Its errors have no value, which may be a
// secret.
func parseHeader[T ~map[string][]string](dst *T) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		var name, value string
		if !d.Args(&name, &value) || name == "" {
			return d.Errf("header: want a name and a value")
		}
		if d.NextArg() {
			return d.Errf("header %s: want one value, in quotes if it has spaces", name)
		}
		if *dst == nil {
			*dst = make(T)
		}
		name = http.CanonicalHeaderKey(name)
		(*dst)[name] = append((*dst)[name], value)
		return nil
	}
}

const (
	wantModule  = "a matcher such as path, method or header"
	wantMatcher = "@name, a path, or " + wantModule
)

// parseMatch parses match <matcher> [<args...>] or a block of matchers. An empty block
// matches every request, as github.com/mholt/caddy-ratelimit has it.
func (p *zoneParser) parseMatch(d *caddyfile.Dispenser) error {
	if _, empty := option.OpensBlock(d); empty {
		d.NextBlock(d.Nesting()) // consumes it
		p.zone.MatcherSetsRaw = append(p.zone.MatcherSetsRaw, caddy.ModuleMap{})
		return nil
	}
	set, err := p.matcherSet(d, wantMatcher)
	p.zone.MatcherSetsRaw = append(p.zone.MatcherSetsRaw, set)
	return err
}

// parseExempt parses exempt <cidr...>, or the same arguments as match.
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

// matcherSet parses one set of matchers, all of which must match.
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
		return nil, option.Located(d, err)
	}
	return set, nil
}

// ruleParser is a parsed rule whose options await the choice of an algorithm.
type ruleParser struct {
	rule      *config.Rule
	rate      caddyfile.Token
	algorithm string            // named by the rule; empty: none
	options   []caddyfile.Token // including the braces of their block
}

// parseRuleLine parses rule <rate> [<algorithm>] [<options>] and its block.
func (p *zoneParser) parseRuleLine(d *caddyfile.Dispenser) error {
	r, err := p.parseRuleSegment(d)
	p.zone.Rules = append(p.zone.Rules, r)
	return err
}

func (p *zoneParser) parseRuleSegment(d *caddyfile.Dispenser) (*config.Rule, error) {
	tokens := d.NextSegment()
	if len(tokens) < 2 || isBrace(tokens[1]) {
		return nil, option.At(tokens[0], errors.New("rule: want a rate, such as rule 10/s"))
	}
	return p.parseRule(tokens[1], tokens[2:])
}

// parseRule parses a rate and what follows it, on the line and in a block: an algorithm
// with its options, and the rule's name and block, in any order.
func (p *zoneParser) parseRule(rate caddyfile.Token, rest []caddyfile.Token) (*config.Rule, error) {
	from, window, varies, err := config.CutLimitFrom(rate.Text)
	var limit int64
	if !varies {
		limit, window, err = config.ParseRate(rate.Text)
	}
	if err != nil {
		return nil, option.At(rate, err)
	}
	r := &ruleParser{rule: &config.Rule{Limit: limit, LimitFrom: from, Window: caddy.Duration(window)}, rate: rate}
	p.rules = append(p.rules, r)
	p.lines[r.rule] = rate
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
	return r.rule, nil
}

// parseWord parses the first of the tokens and returns how many it consumed.
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
		return 2, config.CheckName(tokens[1].Text)
	case t.Text == "block":
		if r.rule.Block != 0 {
			return 0, fmt.Errorf("block stands twice, first block %v: want it once", time.Duration(r.rule.Block))
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

// parseElse parses else <count>.
func (r *ruleParser) parseElse(tokens []caddyfile.Token) (int, error) {
	switch {
	case r.rule.LimitFrom == "":
		return 0, errors.New("else: want it only after a limit from the request, such as rule {http.auth.user.limit}/1m else 100")
	case r.rule.Limit != 0:
		return 0, errors.New("else stands twice: want it once")
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

// chooseAlgorithms parses the options of every rule with its algorithm: the rule's, the
// zone's or the default. A rule with neither is left to provisioning.
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
	r.rule.AlgorithmRaw, err = moduleJSON(a, "name", name)
	return err
}

// moduleJSON returns a module's JSON with its name. Unlike caddyconfig.JSONModuleObject
// it does not convert numbers to float64.
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

// parseOverride parses override <part...> unlimited, or a block of rules. Without parts,
// the block has the keys, too.
func (p *zoneParser) parseOverride(d *caddyfile.Dispenser) error {
	o := new(config.Override)
	p.zone.Overrides = append(p.zone.Overrides, o)
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

// parseDistributed parses distributed and its block.
func (c *directive) parseDistributed(d *caddyfile.Dispenser) error {
	at := d.Token()
	v := new(config.Distributed)
	c.handler.Distributed = v
	s := &option.Set{One: map[string]option.Parse{
		"read_interval":  option.Duration(&v.ReadInterval),
		"write_interval": option.Duration(&v.WriteInterval),
		"purge_age":      option.Duration(&v.PurgeAge),
	}}
	if err := s.Block(d); err != nil {
		return err
	}
	if !c.shares() {
		return option.At(at, config.ErrNotShared)
	}
	return nil
}

// shares reports whether the global options have a store.
func (c *directive) shares() bool {
	app, _ := c.Option("rate_limit").(httpcaddyfile.App)
	var stores struct {
		Stores []json.RawMessage `json:"stores"`
	}
	return json.Unmarshal(app.Value, &stores) == nil && len(stores.Stores) > 0
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
func (c *directive) parseSize(z *config.Zone, rate caddyfile.Token, rest []caddyfile.Token) ([]caddyfile.Token, error) {
	if !config.SimpleRate.MatchString(rate.Text) || len(z.Key) == 0 {
		return rest, nil
	}
	if len(rest) == 0 || isNumber(rest[0].Text) {
		if err := checkCompactKey(z.Key[0]); err != nil {
			return nil, option.At(rate, err)
		}
		z.KeyMissing = config.CompatKeyMissing(z.Key[0])
	}
	if len(rest) > 0 && isNumber(rest[0].Text) {
		if err := option.Whole(&z.MaxKeys, 0, option.Max)(valueOf("zone_size", rest[0])); err != nil {
			return nil, err
		}
		rest = rest[1:]
		if len(rest) > 0 && isNumber(rest[0].Text) {
			if err := option.Whole(&c.handler.RejectStatus, 200, 599)(valueOf("reject_status", rest[0])); err != nil {
				return nil, err
			}
			if err := config.CheckRejectStatus(c.handler.RejectStatus); err != nil {
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
