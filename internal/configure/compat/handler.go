package compat

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/autoname"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/configure/placeholders"
	"github.com/dianalimiter/diana/internal/key"
)

// Handler is what a handler has of the options of these plugins.
type Handler struct {
	RateLimits map[string]*config.Zone // rate_limits, by name
	Key        string                  // of the zone of the other plugin; empty: there is none
	Rate       string                  // of that zone, such as 10r/s
	ZoneSize   int64                   // max_keys of that zone; 0: the app's

	// Warn warns of an option.
	Warn func(msg string, fields ...zap.Field)

	// AutoName returns an automatic name as one that no other zone has.
	AutoName func(name string) string
}

// Zones returns the zones of a handler in a server with those of these options, normalized, in the order
// of evaluation. Invalid ones are left out.
func (h *Handler) Zones(all []*config.Zone, server string) (zones []*config.Zone, err error) {
	var invalid []error
	all = slices.Clone(all)
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
		normal, err := Normalize(z)
		if err != nil {
			invalid = append(invalid, fmt.Errorf("zone %s: %w", z.Name, err))
			continue
		}
		zones = append(zones, normal)
		if z != nil && trustsForwardedFor(z) {
			h.Warn("{remote.ip} is read as {client_ip}: the plugin that it comes from trusts any X-Forwarded-For, here only those of trusted_proxies are trusted",
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
	if named.Name = autoname.Safe(name); named.Name != name {
		named.Written = name
		h.Warn("the zone's name has characters that are not allowed: it is replaced",
			zap.String("name", name), zap.String("zone", named.Name))
	}
	return &named, nil
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
		err = CheckKey(h.Key)
	}
	if err != nil {
		return nil, err
	}
	z := &config.Zone{
		Key: config.Parts{h.Key}, KeyMissing: KeyMissing(h.Key), KeyRepeated: key.RepeatedJoin, MaxKeys: h.ZoneSize,
		Rules: []*config.Rule{{Limit: limit, Window: window}},
	}
	z.Name = h.AutoName(autoname.Of(autoname.Definition(nil, z, false, server)))
	return z, nil
}

// CheckKey rejects a key in the compact form of
// github.com/RussellLuo/caddy-ext/ratelimit that this plugin rejects too.
func CheckKey(key string) error {
	z, err := Normalize(&config.Zone{Key: config.Parts{key}})
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
