package diana

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/option"
	"github.com/dianalimiter/diana/internal/placeholders"
)

// The options of other plugins named rate_limit: github.com/mholt/caddy-ratelimit and
// github.com/RussellLuo/caddy-ext/ratelimit. They are replaced by their equivalents
// before anything else uses them.

// allZones returns the zones of a handler in a server, normalized, in the order of evaluation. Invalid
// ones are left out.
func (h *Handler) allZones(server string) (zones []*config.Zone, err error) {
	var invalid []error
	all := slices.Clone(h.Zones)
	for _, name := range h.rateLimitNames() {
		z, err := h.rateLimit(name)
		if err != nil {
			invalid = append(invalid, err)
			continue
		}
		all = append(all, z)
	}
	if z, err := h.keyRateZone(server); err != nil {
		invalid = append(invalid, err)
	} else if z != nil {
		all = append(all, z)
	}
	for _, z := range all {
		normal, err := z.Normalize()
		if err != nil {
			invalid = append(invalid, fmt.Errorf("zone %s: %w", z.Name, err))
			continue
		}
		zones = append(zones, normal)
		if z != nil && z.TrustsForwardedFor() {
			h.app.warn(h.logger, "{remote.ip} is read as {client_ip}: the plugin that it comes from trusts any X-Forwarded-For, here only those of trusted_proxies are trusted",
				zap.String("zone", z.Name))
		}
	}
	return zones, option.Join(invalid...)
}

// rateLimit returns the zone of RateLimits with a name, which it replaces if it is invalid.
func (h *Handler) rateLimit(name string) (*config.Zone, error) {
	z := h.RateLimits[name]
	if z == nil {
		return nil, fmt.Errorf("rate_limits: zone %q null: want an object with max_events and window", name)
	}
	named := *z
	if z.Name != "" && z.Name != name {
		return nil, fmt.Errorf("rate_limits: zone %q has the name %q too: want one", name, z.Name)
	}
	if named.Name = config.SafeName(name); named.Name != name {
		named.Written = name
		h.app.warn(h.logger, "the zone's name has characters that are not allowed: it is replaced",
			zap.String("name", name), zap.String("zone", named.Name))
	}
	return &named, nil
}

// checkCompat checks the handler's other options of these plugins, and warns of those
// that are ignored.
func (h *Handler) checkCompat() error {
	ignored := func(option, why string, given bool) {
		if given {
			h.app.warn(h.logger, option+" is ignored: "+why)
		}
	}
	ignored("sweep_interval", "expired state needs no sweep", h.SweepInterval != 0)
	ignored("storage", "counts are shared through `store redis` in the global option rate_limit", len(h.Storage) > 0)
	if d := h.Distributed; d != nil {
		const why = "every decision is made in Redis"
		ignored("read_interval", why, d.ReadInterval != 0)
		ignored("write_interval", why, d.WriteInterval != 0)
		ignored("purge_age", "every key in Redis has a TTL", d.PurgeAge != 0)
		if len(h.app.StoresRaw) == 0 {
			return config.ErrNotShared
		}
	}
	return config.CheckRejectStatus(h.RejectStatus)
}

// rateLimitNames returns the names of RateLimits in the order in which that plugin
// evaluates them: by descending rate.
func (h *Handler) rateLimitNames() []string {
	rate := func(name string) float64 {
		z := h.RateLimits[name]
		if z == nil || z.Window <= 0 {
			return 0
		}
		return float64(z.MaxEvents) / float64(z.Window)
	}
	return slices.SortedFunc(maps.Keys(h.RateLimits), func(a, b string) int {
		return cmp.Or(cmp.Compare(rate(b), rate(a)), strings.Compare(a, b))
	})
}

// keyRateZone returns the zone of key, rate and zone_size; nil without them. Caddy provisions servers
// in any order, so that only those of one server are told apart by a number. The named routes of a
// server have none: Caddy provisions them in any order, too, and does not say which.
func (h *Handler) keyRateZone(server string) (*config.Zone, error) {
	if h.Key == "" && h.Rate == "" && h.ZoneSize == 0 {
		return nil, nil //nolint:nilnil // there is no such zone
	}
	if h.Key == "" || h.Rate == "" {
		return nil, fmt.Errorf("key %q with rate %q: want both, such as {query.id} and 10r/s", h.Key, h.Rate)
	}
	limit, window, err := config.ParseRate(h.Rate)
	if err == nil {
		err = checkCompactKey(h.Key)
	}
	if err != nil {
		return nil, err
	}
	z := &config.Zone{
		Key: config.Parts{h.Key}, KeyMissing: config.CompatKeyMissing(h.Key), KeyRepeated: key.RepeatedJoin, MaxKeys: h.ZoneSize,
		Rules: []*config.Rule{{Limit: limit, Window: window}},
	}
	z.Name = h.app.autoName(config.AutoName(config.DefinitionOf(nil, z, false, server)))
	return z, nil
}

// autoName returns an automatic name with a number, unless it is the first of its kind,
// because each handler with such a zone has its own counts.
func (a *App) autoName(name string) string {
	a.autoNames[name]++
	if n := a.autoNames[name]; n > 1 {
		name += "-" + strconv.Itoa(n)
	}
	return name
}

// checkCompactKey rejects a key in the compact form of
// github.com/RussellLuo/caddy-ext/ratelimit that this plugin rejects too.
func checkCompactKey(key string) error {
	z, err := (&config.Zone{Key: config.Parts{key}}).Normalize()
	if err != nil {
		return err
	}
	plan, err := z.KeyPlan()
	if err != nil {
		return err
	}
	for _, name := range plan.Placeholders() {
		// The plugin takes other names of a request for empty, and this one for an address.
		if !placeholders.Provided(name) && (!strings.HasPrefix(name, "http.request.") || placeholders.Advice(name) == "write {client_ip}") {
			return fmt.Errorf("key %s: nothing in this build provides {%s}: %s; a variable of map is a key in a block only, such as zone <name> { key %s … }",
				key, name, placeholders.Advice(name), key)
		}
	}
	return nil
}
