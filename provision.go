package diana

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// handlerState is what a handler keeps besides its configuration.
type handlerState struct {
	app     *App
	logger  *zap.Logger
	zones   []*zone
	across  bool // the zones lie in more than one store
	unread  bool // nobody reads the placeholders
	headers string
}

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(ctx caddy.Context) error {
	app, err := ctx.App("rate_limit")
	if err != nil {
		return err
	}
	var ok bool
	if h.app, ok = app.(*App); !ok {
		return fmt.Errorf("app rate_limit is a %T", app)
	}
	h.logger, h.unread = ctx.Logger(), h.app.unread(ctx)
	h.headers = orDefault(orDefault(h.Headers, h.app.Headers), headersDraft)
	if err := errors.Join(checkHeaders(h.Headers), h.checkJitter(), h.checkForeign()); err != nil {
		return err
	}
	list, err := h.allZones()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("no zone: want at least one, such as rate_limit {client_ip} 10/s")
	}
	for _, c := range list {
		z, err := h.newZone(ctx, c)
		if err != nil {
			return err
		}
		h.zones = append(h.zones, z)
		if !h.DisableMetrics {
			z.provisionTops()
		}
		if z.PreventDuplicates != nil {
			z.provisionTwins()
		}
		h.across = h.across || z.store != h.zones[0].store
	}
	h.across = h.across || len(h.zones) > 1 && slices.ContainsFunc(h.zones, (*zone).clustered)
	// What is given from outside comes second, so that a configuration whose own
	// rules are wrong does not load, whatever a document says.
	if err := h.provisionTerms(); err != nil {
		return err
	}
	for _, z := range h.zones {
		h.advise(z)
	}
	h.app.join(h)
	return nil
}

func (h *Handler) checkJitter() error {
	if !(h.Jitter >= 0 && h.Jitter <= 1) {
		return fmt.Errorf("jitter %v: want 0 to 1", h.Jitter)
	}
	return nil
}

// newZone makes a zone ready but for its counters.
func (h *Handler) newZone(ctx caddy.Context, c *Zone) (*zone, error) {
	z, err := newZone(c)
	if err != nil {
		return nil, err
	}
	for _, other := range h.zones {
		if other.Name == z.Name {
			return nil, fmt.Errorf("zone %s stands twice in one handler: want another name", z.Name)
		}
	}
	if z.matchers, err = loadMatchers(ctx, c, "MatcherSetsRaw"); err != nil {
		return nil, fmt.Errorf("zone %s: match: %w", z.Name, err)
	}
	if z.exempt, err = loadMatchers(ctx, c, "ExemptRaw"); err != nil {
		return nil, fmt.Errorf("zone %s: exempt: %w", z.Name, err)
	}
	if z.store, z.hasher, err = h.app.store(z.Store); err != nil {
		return nil, fmt.Errorf("zone %s: %w", z.Name, err)
	}
	z.quiet = c.quiet && h.Headers == "" && h.app.Headers == ""
	z.queue.max = maxWaiting
	if !h.DisableMetrics {
		z.metrics = h.app.metrics.zone(z.Name, h.storeName(z))
	}
	return z, h.app.define(z.Name, z.definition())
}

func loadMatchers(ctx caddy.Context, c *Zone, field string) (sets caddyhttp.MatcherSets, err error) {
	v, err := ctx.LoadModule(c, field)
	if err != nil {
		return nil, err
	}
	return sets, sets.FromInterface(v)
}

func (h *Handler) storeName(z *zone) string {
	if s, ok := z.store.(*redis.Store); ok {
		return s.Name()
	}
	return localStore
}

// definition is what other handlers that name the zone must say too.
func (z *zone) definition() definition {
	c := z.Zone
	text, err := json.Marshal(struct {
		Key         []string    `json:"key,omitempty"`
		KeyMissing  string      `json:"key_missing"`
		V4          int         `json:"ipv4_prefix"`
		V6          int         `json:"ipv6_prefix"`
		Algorithm   string      `json:"algorithm,omitempty"`
		Rules       []*Rule     `json:"rules,omitempty"`
		InFlight    int64       `json:"in_flight,omitempty"`
		CountStatus []Value     `json:"count_status,omitempty"`
		Overrides   []*Override `json:"overrides,omitempty"`
		Store       string      `json:"store,omitempty"`
	}{c.Key, z.key.missing, z.key.v4, z.key.v6, c.Algorithm, c.Rules, c.InFlight, c.CountStatus, c.Overrides, c.Store})
	if err != nil {
		text = []byte(err.Error())
	}
	return definition{text: string(text)}
}

// identity tells keys apart that are built in different ways.
func (p *keyPlan) identity(c *Zone) string {
	return fmt.Sprintf("%q %s %d %d", c.Key, p.missing, p.v4, p.v6)
}

// checkStores sees what zones in different stores, or in different slots of a
// cluster, cannot have. all are the zones as they will be.
func (h *Handler) checkStores(all []*terms) error {
	var last *zone
	for i, z := range h.zones {
		if all[i].shadow || all[i].maxDelay == 0 {
			continue
		}
		if last != nil && (last.store != z.store || z.clustered() && last.key.identity(last.Zone) != z.key.identity(z.Zone)) {
			return fmt.Errorf("zones %s and %s: a leaky_bucket that delays in both, which are not decided in one place: want the same store, and in a cluster the same key", last.Name, z.Name)
		}
		last = z
	}
	return nil
}

// clustered says whether the zone's keys are spread over a cluster.
func (z *zone) clustered() bool {
	s, ok := z.store.(*redis.Store)
	return ok && s.Clustered()
}

// holds says whether requests may take places in a table: where the zone asks
// for it and, with a shared store about, everywhere, because another handler may
// decide the zone together with one in another store.
func (h *Handler) holds(z *zone, s *ruleSet) bool {
	return len(h.app.shared) > 0 || !s.duplicates && (z.InFlight > 0 || len(z.CountStatus) > 0)
}

// advise warns of what is allowed and seldom meant.
func (h *Handler) advise(z *zone) {
	_, shared := z.store.(*redis.Store)
	if shared && strings.HasPrefix(z.Name, "auto-") {
		h.logger.Warn("the zone has an automatic name, which other instances share only while their rules are the same: give it one", zap.String("zone", z.Name))
	}
	for _, t := range z.key.parts {
		if t.uses("http.auth.") {
			h.logger.Warn("the key uses what authentication finds out, and rate_limit runs before it by default: order it after, or use route", zap.String("zone", z.Name))
		}
		if !t.single() && t.uses(clientIPVar) && !z.Zone.quiet {
			h.logger.Warn("a key part mixes the client's address with text, so that prefixes do not apply: make it a part of its own", zap.String("zone", z.Name))
		}
	}
	for _, s := range z.sets() {
		for i, a := range s.algs {
			if w, ok := a.(*algorithms.SlidingWindow); ok && s.specs[i].Limit < w.Parts() {
				h.logger.Warn("a sliding_window with a limit below its buckets: a sliding_log is exact and smaller",
					zap.String("zone", z.Name), zap.String("rule", s.labels[i]))
			}
		}
	}
}

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	if h.app == nil {
		return nil
	}
	return h.app.leave(h)
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
