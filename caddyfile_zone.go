package diana

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/internal/option"
)

// zoneParser reads a zone.
type zoneParser struct {
	httpcaddyfile.Helper
	zone  *Zone
	rules []*ruleParser           // of the zone and of its overrides
	lines map[any]caddyfile.Token // where rules and overrides stand
	at    caddyfile.Token
}

func newZoneParser(h httpcaddyfile.Helper, at caddyfile.Token) *zoneParser {
	return &zoneParser{Helper: h, zone: new(Zone), lines: make(map[any]caddyfile.Token), at: at}
}

// options are those of a zone.
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
		Check: p.checkOptions,
	}
}

// checkOptions checks what the options that were read so far make together.
// Rules are left to [zoneParser.check], because they depend on options that
// may follow them.
func (p *zoneParser) checkOptions() error {
	z := &zone{Zone: p.zone, maxWait: time.Duration(p.zone.MaxWait)}
	return errors.Join(z.provisionKey(), z.provisionCharges(), z.provisionAnswers())
}

// check checks the zone when all of it was read. An error names the line of the
// rule or override that is wrong, or else of the zone.
func (p *zoneParser) check() error {
	if err := p.chooseAlgorithms(); err != nil {
		return err
	}
	err := p.zone.check()
	if err == nil {
		return nil
	}
	at := p.at
	var c *configError
	if errors.As(err, &c) {
		if t, ok := p.lines[c.at]; ok {
			at = t
		}
	}
	return option.At(at, err)
}

func checkAlgorithm(name string) error {
	_, err := loadAlgorithm(new(Rule), name)
	return err
}

func (p *zoneParser) parseKey(d *caddyfile.Dispenser) error {
	if p.zone.Key = d.RemainingArgs(); len(p.zone.Key) == 0 {
		return d.Errf("key: want one part or more, such as {client_ip}")
	}
	return nil
}

// parseDuplicates reads prevent_duplicates [<window>] [body].
func (p *zoneParser) parseDuplicates(d *caddyfile.Dispenser) error {
	pd := new(PreventDuplicates)
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
		p.zone.CountStatus = append(p.zone.CountStatus, Value(d.Val()))
	}
	if len(p.zone.CountStatus) == 0 {
		return d.Errf("count_status: want one status or more, such as 401 or 4xx")
	}
	return nil
}

// parseRespond reads respond [<status>] [<body>] and its block.
func (p *zoneParser) parseRespond(d *caddyfile.Dispenser) error {
	r := new(Respond)
	p.zone.Respond = r
	args := d.RemainingArgs()
	if len(args) > 0 {
		if n, err := strconv.Atoi(args[0]); err == nil {
			if n == 0 { // which in JSON is the default
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
		Many: map[string]option.Parse{"header": r.parseHeader},
	}
	return s.Block(d)
}

// parseHeader reads header <name> <value>.
func (r *Respond) parseHeader(d *caddyfile.Dispenser) error {
	var name, value string
	if !d.Args(&name, &value) || name == "" {
		return d.Errf("header: want a name and a value")
	}
	if r.Headers == nil {
		r.Headers = make(map[string][]string)
	}
	name = http.CanonicalHeaderKey(name)
	r.Headers[name] = append(r.Headers[name], value)
	return nil
}
