package diana

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/internal/stores/redisconfig"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/rules/sources"
)

// parseGlobalOption parses the global option:
//
//	rate_limit {
//		store redis <address...> {
//			<store options>
//		}
//		max_keys <n>
//		headers  draft|legacy|all|openai|off
//		rules    redis|http|file <source> {
//			interval <duration>
//		}
//	}
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next()
	at := d.Token()
	if _, given := existing.(httpcaddyfile.App); given {
		return nil, d.Errf("rate_limit is given twice among the global options: want all of it in one block")
	}
	var app App
	err := app.options().Block(d)
	if err == nil {
		err = option.End(d, at.Text)
	}
	if err != nil {
		if err := report(existing, err); err != nil {
			return nil, err
		}
	}
	return httpcaddyfile.App{Name: "rate_limit", Value: caddyconfig.JSON(&app, nil)}, nil
}

// reported is the option of an adaptation that collects the errors of all directives: a
// *[option.Errors]. Without it Caddy ends at the first directive with errors.
const reported = "rate_limit.errors"

// report adds an error to those that are collected, or returns it if they are not.
func report(to any, err error) error {
	all, ok := to.(*option.Errors)
	if ok {
		*all = append(*all, err)
		return nil
	}
	return err
}

// options returns the options of the global option.
func (a *App) options() *option.Set {
	return &option.Set{
		One: map[string]option.Parse{
			"max_keys": option.Whole(&a.MaxKeys, 1, config.MaxMaxKeys),
			"headers":  option.Checked(&a.Headers, "draft, legacy, all, openai or off", config.CheckHeaders),
			"rules":    a.parseRules,
		},
		Many: map[string]option.Parse{"store": a.parseStore},
	}
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
	c := &redisconfig.Store{Addresses: d.RemainingArgs()}
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
		if name := cmp.Or(c.Name, redisconfig.DefaultName); name == cmp.Or(other.Name, redisconfig.DefaultName) {
			return option.At(at, fmt.Errorf("store %q is given twice: want another name", name))
		}
	}
	a.Stores = append(a.Stores, c)
	return nil
}

// storeOptions returns the options of a store's block.
func storeOptions(c *redisconfig.Store) *option.Set {
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

func parseSentinel(c *redisconfig.Store) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		c.Sentinel = new(redisconfig.Sentinel)
		if err := option.Text(&c.Sentinel.Master, "the name of the master")(d); err != nil {
			return err
		}
		s := &option.Set{One: map[string]option.Parse{
			"username": option.Text(&c.Sentinel.Username, "a user"),
			"password": option.Secret(&c.Sentinel.Password),
			"plain":    option.Flag(&c.Sentinel.Plain),
		}}
		return s.Block(d)
	}
}

func parseTLS(c *redisconfig.Store) option.Parse {
	return func(d *caddyfile.Dispenser) error {
		c.TLS = new(redisconfig.TLS)
		return tlsOptions(c.TLS).Block(d)
	}
}

func tlsOptions(t *redisconfig.TLS) *option.Set {
	return &option.Set{One: map[string]option.Parse{
		"ca":                   option.Text(&t.CA, "a file"),
		"cert":                 option.Text(&t.Cert, "a file"),
		"key":                  option.Text(&t.Key, "a file"),
		"server_name":          option.Text(&t.ServerName, "a name"),
		"insecure_skip_verify": option.Flag(&t.InsecureSkipVerify),
	}}
}

func httpOptions(h *sources.HTTP) *option.Set {
	return &option.Set{
		One:  map[string]option.Parse{"interval": option.Duration(&h.Interval), "ca": option.Text(&h.CA, "a file")},
		Many: map[string]option.Parse{"header": option.Header(&h.Headers)},
		Unknown: func(word string) error {
			if word == "bearer_token" { // of earlier versions
				return errors.New(`bearer_token: want header Authorization "Bearer {env.TOKEN}"`)
			}
			return nil
		},
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
//		ca       <file>
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
		s      = new(option.Set)
	)
	switch kind {
	case "redis":
		r := new(sources.Redis)
		source, where = r, option.Text(&r.Key, "the name of a key")
		s.One = map[string]option.Parse{"address": option.Secret(&r.Address), "interval": option.Duration(&r.Interval)}
	case "http":
		h := new(sources.HTTP)
		source, where, s = h, option.Text(&h.URL, "an https URL"), httpOptions(h)
	case "file":
		f := new(sources.File)
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
	if err := option.Join(where(d), s.Block(d)); err != nil {
		return err
	}
	a.RulesRaw = caddyconfig.JSONModuleObject(source, "source", kind, nil)
	return nil
}
