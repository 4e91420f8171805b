package zonefile

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/option"
)

// parseInFlight parses in_flight <number>, or in_flight adaptive and its block.
func (p *Parser) parseInFlight(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		if d.Val() == "adaptive" {
			p.Zone.InFlightAdaptive = new(config.Adaptive)
			return adaptiveOptions(p.Zone.InFlightAdaptive).Block(d)
		}
		if option.Nearest(d.Val(), []string{"adaptive"}) != "" {
			return d.Errf("in_flight %q: want adaptive, or a whole number", d.Val())
		}
		d.Prev()
	}
	return option.Whole(&p.Zone.InFlight, 1, config.MaxInFlight)(d)
}

// adaptiveOptions returns the options of the block of in_flight adaptive.
func adaptiveOptions(a *config.Adaptive) *option.Set {
	return &option.Set{One: map[string]option.Parse{
		"min": option.Whole(&a.Min, 1, config.MaxInFlight),
		"max": option.Whole(&a.Max, 1, config.MaxInFlight),
		"priority": words("a placeholder, such as {http.auth.user.tier}, and its values, the most important first", func(words []string) {
			a.Priority, a.Classes = config.Value(words[0]), words[1:]
		}),
	}}
}
