package diana

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
)

// What configurations of the other plugins that are called rate_limit have, and
// how it is said in this plugin's own words. Handlers and zones are brought to
// these before anything else looks at them.

// allZones are the handler's zones in this plugin's own words, in the order in
// which a denial is looked for.
func (h *Handler) allZones() ([]*config.Zone, error) {
	all := slices.Clone(h.Zones)
	for _, name := range h.inheritedNames() {
		z := h.RateLimits[name]
		if z == nil {
			return nil, fmt.Errorf("rate_limits: zone %q null: want an object with max_events and window", name)
		}
		named := *z
		if z.Name != "" && z.Name != name {
			return nil, fmt.Errorf("rate_limits: zone %q has the name %q too: want one", name, z.Name)
		}
		if named.Name = config.SafeName(name); named.Name != name {
			h.app.warn(h.logger, "the zone's name has characters that a name cannot have here: it is called otherwise",
				zap.String("name", name), zap.String("zone", named.Name))
		}
		all = append(all, &named)
	}
	one, err := h.oneZone()
	if err != nil {
		return nil, err
	}
	if one != nil {
		all = append(all, one)
	}
	for i, z := range all {
		if z == nil {
			continue
		}
		if all[i], err = z.Native(); err != nil {
			return nil, fmt.Errorf("zone %s: %w", z.Name, err)
		}
		if z.Believes() {
			h.app.warn(h.logger, "{remote.ip} is read as {client_ip}: the plugin that it comes from believed any X-Forwarded-For, here only trusted_proxies are believed",
				zap.String("zone", z.Name))
		}
	}
	return all, nil
}

// checkCompat checks and tells what else of the other plugins' options there is.
func (h *Handler) checkCompat() error {
	ignored := func(option, why string, given bool) {
		if given {
			h.app.warn(h.logger, option+" is ignored: "+why)
		}
	}
	ignored("sweep_interval", "what is over is forgotten without being swept", h.SweepInterval != 0)
	ignored("storage", "counts are shared through `store redis` in the global option rate_limit", len(h.Storage) > 0)
	if d := h.Distributed; d != nil {
		const why = "every decision is made in Redis"
		ignored("read_interval", why, d.ReadInterval != 0)
		ignored("write_interval", why, d.WriteInterval != 0)
		ignored("purge_age", "every key in Redis expires by itself", d.PurgeAge != 0)
		if len(h.app.Stores) == 0 {
			return config.ErrNotShared
		}
	}
	return config.CheckRejectStatus(h.RejectStatus)
}

// warn logs a warning once for all handlers of a configuration that give the
// same cause.
func (a *App) warn(l *zap.Logger, msg string, fields ...zap.Field) {
	cause := msg
	for _, f := range fields {
		cause += "\n" + f.String
	}
	if !a.warned[cause] {
		a.warned[cause] = true
		l.Warn(msg, fields...)
	}
}

// inheritedNames are those of RateLimits in the order in which that plugin
// decides them: the one that admits most first.
func (h *Handler) inheritedNames() []string {
	permits := func(name string) float64 {
		z := h.RateLimits[name]
		if z == nil || z.Window <= 0 {
			return 0
		}
		return float64(z.MaxEvents) / float64(z.Window)
	}
	return slices.SortedFunc(maps.Keys(h.RateLimits), func(a, b string) int {
		return cmp.Or(cmp.Compare(permits(b), permits(a)), strings.Compare(a, b))
	})
}

// oneZone is the zone that key and rate make; nil without them.
func (h *Handler) oneZone() (*config.Zone, error) {
	if h.Key == "" && h.Rate == "" && h.ZoneSize == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	if h.Key == "" || h.Rate == "" {
		return nil, fmt.Errorf("key %q with rate %q: want both, such as {query.id} and 10r/s", h.Key, h.Rate)
	}
	limit, window, err := config.ParseRate(h.Rate)
	if err != nil {
		return nil, err
	}
	z := &config.Zone{
		Key: config.Parts{h.Key}, KeyMissing: config.MissingIn(h.Key), MaxKeys: h.ZoneSize,
		Rules: []*config.Rule{{Limit: limit, Window: caddy.Duration(window)}},
	}
	z.Name = h.app.autoName(config.AutoName(nil, z, false))
	return z, nil
}

// autoName numbers automatic names that are given here and not by the
// Caddyfile, because each such handler has counts of its own.
func (a *App) autoName(name string) string {
	a.autoNames[name]++
	if n := a.autoNames[name]; n > 1 {
		name += "-" + strconv.Itoa(n)
	}
	return name
}
