package diana

import (
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/rules"
)

// parseRules reads where rules from outside are:
//
//	rules redis <key> {
//		address  <url>
//		interval <duration>
//	}
//	rules http <url> {
//		bearer_token <token>
//		interval     <duration>
//	}
//	rules file <path> {
//		interval <duration>
//	}
//
// Another source is a module that reads itself from a Caddyfile.
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
		s.One = map[string]option.Parse{"bearer_token": option.Secret(&h.BearerToken), "interval": option.Duration(&h.Interval)}
	case "file":
		f := new(rules.File)
		source, where = f, option.Text(&f.Path, "a path")
		s.One = map[string]option.Parse{"interval": option.Duration(&f.Interval)}
	default:
		m, err := caddyfile.UnmarshalModule(d, rules.Namespace+"."+kind)
		if err != nil {
			return d.Errf("rules %q: want redis, http or file", kind)
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
