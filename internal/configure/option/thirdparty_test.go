package option_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	_ "github.com/dianalimiter/diana"
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/rules/sources"
)

// lottery is a third-party algorithm. It reads its options with Caddy's dispenser
// only, and one of them takes two values.
type lottery struct {
	algorithms.SlidingLog

	Odds []string `json:"odds,omitempty"`
}

func (*lottery) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: algorithms.Namespace + ".lottery", New: func() caddy.Module { return new(lottery) }}
}

func (l *lottery) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	for d.NextArg() || d.NextBlock(0) {
		var a, b string
		if d.Val() != "odds" {
			return d.Errf("lottery knows no %q", d.Val())
		}
		if !d.Args(&a, &b) {
			return d.ArgErr()
		}
		l.Odds = append(l.Odds, a, b)
	}
	return nil
}

// terse is a third-party algorithm that has options in JSON only.
type terse struct{ lottery }

func (*terse) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: algorithms.Namespace + ".terse", New: func() caddy.Module { return new(terse) }}
}

func (*terse) UnmarshalCaddyfile() {}

// drawn is a third-party algorithm that checks its options as a Caddy module.
type drawn struct{ lottery }

func (*drawn) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: algorithms.Namespace + ".drawn", New: func() caddy.Module { return new(drawn) }}
}

func (d *drawn) Validate() error {
	if len(d.Odds) == 0 {
		return errors.New("no odds: want two numbers")
	}
	return nil
}

// provisioned is a third-party algorithm that wants to be provisioned.
type provisioned struct{ lottery }

func (*provisioned) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: algorithms.Namespace + ".provisioned", New: func() caddy.Module { return new(provisioned) }}
}

func (*provisioned) Provision(caddy.Context) error { return nil }

// TestThirdPartyAlgorithm parses options of third-party algorithms. They are
// registered in this package only, because the errors in the parser's other tests
// name all algorithms.
func TestThirdPartyAlgorithm(t *testing.T) {
	caddy.RegisterModule(new(lottery))
	caddy.RegisterModule(new(terse))
	caddy.RegisterModule(new(drawn))
	caddy.RegisterModule(new(provisioned))
	for _, c := range []struct{ rule, want string }{
		{"10/s lottery", `"algorithm":{"name":"lottery"}`},
		{"10/s lottery odds 1 2", `"algorithm":{"name":"lottery","odds":["1","2"]}`},
		{"10/s name x odds 1 2 lottery {\n odds 3 4\n name2\n}", `lottery knows no "name2", at Caddyfile:6`},
		{"10/s odds 1 2 lottery {\n odds 3 4\n}", `"algorithm":{"name":"lottery","odds":["1","2","3","4"]}`},
		{"10/s lottery odds 1", "wrong argument count"},
		{"10/s gcra odds 1 2", "odds: gcra has no such option: want drawn, lottery, provisioned or terse for it, at Caddyfile:4"},
		{"10/s terse", `"algorithm":{"name":"terse"}`},
		{"10/s terse odds 1 2", "algorithm terse: want no options"},
		{"10/s drawn odds 1 2", `"algorithm":{"name":"drawn","odds":["1","2"]}`},
		{"10/s drawn", "algorithm drawn: no odds: want two numbers"},
		{"10/s provisioned", "algorithm provisioned: it has Provision, which is not called"},
		{"10/s sortition", "lottery, provisioned, sliding_log, sliding_window, terse or token_bucket"},
	} {
		in := ":8080 {\nrate_limit {\nzone z {\nrule " + c.rule + "\n}\n}\n}\n"
		b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(in), nil)
		got := string(b)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("rule %s: %s, want %s", c.rule, got, c.want)
		}
	}
}

// pigeon is a third-party source of rules.
type pigeon struct {
	sources.File

	Loft string `json:"loft"`
}

func (*pigeon) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: rules.Namespace + ".pigeon", New: func() caddy.Module { return new(pigeon) }}
}

func (p *pigeon) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&p.Loft) {
		return errors.New("no loft: want the name of one")
	}
	for d.NextBlock(0) {
		return d.Errf("pigeon knows no %q", d.Val())
	}
	return nil
}

// mute is a third-party source that has options in JSON only.
type mute struct{ sources.File }

func (*mute) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: rules.Namespace + ".mute", New: func() caddy.Module { return new(mute) }}
}

// TestThirdPartySource parses options of third-party sources: an error is their own.
func TestThirdPartySource(t *testing.T) {
	caddy.RegisterModule(new(pigeon))
	caddy.RegisterModule(new(mute))
	for _, c := range []struct{ rules, want string }{
		{"pigeon roof", `"rules":{"loft":"roof","path":"","source":"pigeon"}`},
		{"pigeon", "rules pigeon: no loft: want the name of one, at Caddyfile:3"},
		{"pigeon roof {\n colour grey\n}", `rules pigeon: pigeon knows no "colour", at Caddyfile:4`},
		{"mute", "rules mute: module http.rate_limit.rule_sources.mute is not a Caddyfile unmarshaler"},
		{"raven", `rules "raven": want file, http, mute, pigeon or redis, at Caddyfile:3`},
	} {
		in := "{\nrate_limit {\nrules " + c.rules + "\n}\n}\n:8080\n"
		b, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(in), nil)
		got := string(b)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("rules %s: %s, want %s", c.rules, got, c.want)
		}
	}
}
