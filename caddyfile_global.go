package diana

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/configure/zonefile"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/rules/sources"
	"github.com/dianalimiter/diana/stores"
)

// parseGlobalOption parses the global option:
//
//	rate_limit {
//		store redis <address...> {
//			<store options>
//		}
//		max_keys <n>
//		headers  <format>
//		rules    redis|http|file <source> {
//			interval <duration>
//		}
//	}
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next()
	at := d.Token()
	if _, given := existing.(httpcaddyfile.App); given {
		return nil, d.Errf("%s is given twice among the global options: want all of it in one block", at.Text)
	}
	var app App
	err := option.Semicolons(d)
	if d.Next(); err == nil {
		err = app.options().Block(d)
	}
	if err == nil {
		err = option.End(d, at.Text)
	}
	if err != nil {
		if err := report(existing, err); err != nil {
			return nil, err
		}
	}
	return httpcaddyfile.App{Name: at.Text, Value: caddyconfig.JSON(&app, nil)}, nil
}

// errBothOptions is the error of a second global option that has the other name.
var errBothOptions = fmt.Errorf("%s and %s are both given among the global options, and are one: want all of it in one block", names.Shared, names.Always)

// report adds an error to those that are collected, or returns it if they are not.
func report(to any, err error) error {
	err = option.Hint(err)
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
			"headers":  option.Checked(&a.Headers, wantHeaders, checkHeaders),
			"rules":    a.parseRules,
		},
		Many: map[string]option.Parse{"store": a.parseStore},
	}
}

// parseStore parses store <module> <arguments...> and its block, which the module reads.
func (a *App) parseStore(d *caddyfile.Dispenser) error {
	at := d.Token()
	want := "redis and its address, such as store redis localhost:6379"
	for _, name := range option.Modules(stores.Namespace) {
		if name != defaultStore {
			want += ", or " + name
		}
	}
	if !d.NextArg() {
		return d.Errf("store: want %s", want)
	}
	kind := d.Val()
	if _, err := caddy.GetModule(stores.Namespace + "." + kind); err != nil {
		if strings.Contains(kind, "@") { // a URL with a password, perhaps
			return d.Errf("store: want %s", want)
		}
		return d.Errf("store %q: want %s", kind, want)
	}
	m, err := caddyfile.UnmarshalModule(d, stores.Namespace+"."+kind)
	if err != nil {
		return zonefile.LocatedAt(at, err)
	}
	raw := caddyconfig.JSON(m, nil)
	if kind != defaultStore {
		raw = caddyconfig.JSONModuleObject(m, "store", kind, nil)
	}
	s, err := parseStoreJSON(raw)
	if err != nil {
		return option.At(at, fmt.Errorf("store %s: %w", kind, err))
	}
	for _, other := range a.StoresRaw {
		if other, err := parseStoreJSON(other); err == nil && other.called() == s.called() {
			return option.At(at, fmt.Errorf("store %q is given twice: want another name", s.called()))
		}
	}
	a.StoresRaw = append(a.StoresRaw, raw)
	return nil
}

func httpOptions(h *sources.HTTP) *option.Set {
	return &option.Set{
		One:  map[string]option.Parse{"interval": option.Duration(&h.Interval), "ca": option.Text(&h.CA, "a file")},
		Many: map[string]option.Parse{"header": zonefile.Header(&h.Headers)},
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
		at     = d.Token()
		kind   = d.Val()
		source caddy.Provisioner
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
		if _, err := caddy.GetModule(rules.Namespace + "." + kind); err != nil {
			return d.Errf("rules %q: want %s", kind, option.Or(option.Modules(rules.Namespace)))
		}
		m, err := caddyfile.UnmarshalModule(d, rules.Namespace+"."+kind)
		if err != nil {
			return zonefile.LocatedAt(at, fmt.Errorf("rules %s: %w", kind, err))
		}
		a.RulesRaw = caddyconfig.JSONModuleObject(m, "source", kind, nil)
		return nil
	}
	if err := option.Join(where(d), s.Block(d)); err != nil {
		return err
	}
	a.RulesRaw = caddyconfig.JSONModuleObject(source, "source", kind, nil)
	if h, ok := source.(*sources.HTTP); resolvedLater(a.RulesRaw) || ok && h.CA != "" { // a file that need not be here
		return nil
	}
	if err := source.Provision(caddy.Context{}); err != nil {
		return option.At(at, fmt.Errorf("rules %s: %w", kind, err))
	}
	return nil
}
