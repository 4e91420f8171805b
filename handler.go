package diana

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/compat"
	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/configure/warnings"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/ops/running"
)

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(ctx caddy.Context) error {
	v, err := names.App(ctx)
	if err != nil {
		return err
	}
	app := v.(*App)
	h.app, h.logger = app, ctx.Logger()
	app.hash.Add(h) // matchers are still in it
	invalid := checkHeaders(h.Headers)
	if !(h.Jitter >= 0 && h.Jitter <= 1) {
		invalid = option.Join(invalid, fmt.Errorf("jitter %v: want 0 to 1", h.Jitter))
	}
	invalid = option.Join(invalid, h.checkCompat())
	other := compat.Handler{
		RateLimits: h.RateLimits, Key: h.Key, Rate: h.Rate, ZoneSize: h.ZoneSize, Warn: app.warnTo(h.logger), AutoName: app.autoName,
	}
	zones, err := other.Zones(h.Zones, running.ServerName(ctx))
	invalid = option.Join(invalid, err)
	if len(zones) == 0 && invalid == nil {
		app.warn(h.logger, "a rate_limit without zones limits nothing", zap.String("advice", "write a rate, such as "+names.Usual()+" {client_ip} 10/s, or a block with a zone"))
	}
	routes := app.httpConfig(ctx)
	server, _ := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	hasErrorRoutes, err := app.errorRoutes.wrap(ctx, server)
	invalid = option.Join(invalid, err)
	h.limiter, err = limiter.New(&app.env, limiter.Options{
		Zones:          zones,
		Matchers:       matchersIn(ctx),
		Headers:        cmp.Or(h.Headers, app.Headers),
		Jitter:         h.Jitter,
		RejectStatus:   h.RejectStatus,
		LogKey:         h.LogKey,
		DisableMetrics: h.DisableMetrics,
		// Offline, no server provisions the handler. In a named route that is invoked twice, it stands once.
		Invoked:      app.process.Clock != nil || server != nil && len(server.NamedRoutes) > 0,
		Placeholders: routes.Reads,
		ErrorRoutes:  hasErrorRoutes,
		Place:        "in server " + cmp.Or(running.ServerName(ctx), "unknown"),
		AccessLogs:   server != nil && server.Logs != nil,
		Spans:        routes.Traced,
		Logger:       h.logger,
	})
	if err := option.Join(invalid, err); err != nil {
		return err
	}
	for _, z := range h.limiter.Zones() {
		warnings.OfZone(app.warnTo(h.logger), z, routes.Mapped)
	}
	// The rules of the source are applied second, so that a configuration with invalid
	// rules is rejected whatever a document says.
	return app.registry.Join(h.limiter)
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
	ignored("storage", "counts are shared through `store redis` in the global option "+names.Usual(), len(h.Storage) > 0)
	if d := h.Distributed; d != nil {
		const why = "every decision is made in Redis"
		ignored("read_interval", why, d.ReadInterval != 0)
		ignored("write_interval", why, d.WriteInterval != 0)
		ignored("purge_age", "every key in Redis has a TTL", d.PurgeAge != 0)
		if len(h.app.StoresRaw) == 0 {
			return compat.NotShared()
		}
	}
	return checkRejectStatus(h.RejectStatus)
}

func checkRejectStatus(status int) error {
	if !config.IsRejection(status) {
		return fmt.Errorf("reject_status %d: want 400 to 599, or 200", status)
	}
	return nil
}

// matchersIn returns a function that loads the matchers of a zone.
func matchersIn(ctx caddy.Context) func(*config.Zone) (match, exempt caddyhttp.MatcherSets, err error) {
	load := func(z *config.Zone, field string) (sets caddyhttp.MatcherSets, err error) {
		loaded := *z // LoadModule clears the field
		v, err := ctx.LoadModule(&loaded, field)
		if err != nil {
			return nil, err
		}
		return sets, sets.FromInterface(v)
	}
	return func(z *config.Zone) (match, exempt caddyhttp.MatcherSets, err error) {
		if match, err = load(z, "MatcherSetsRaw"); err != nil {
			return nil, nil, config.At("/match", fmt.Errorf("match: %w", err))
		}
		if exempt, err = load(z, "ExemptRaw"); err != nil {
			return nil, nil, config.At("/exempt", fmt.Errorf("exempt: %w", err))
		}
		for i, set := range exempt {
			if !slices.ContainsFunc(set, chooses) {
				return nil, nil, fmt.Errorf("exempt %d: it matches every request: want a matcher in it, such as {\"client_ip\": {\"ranges\": [\"10.0.0.0/8\"]}}", i+1)
			}
		}
		return match, exempt, nil
	}
}

// chooses reports whether a matcher may not match a request: "not" without matchers always does.
func chooses(m any) bool {
	not, ok := m.(*caddyhttp.MatchNot)
	return !ok || len(not.MatcherSets) > 0
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.limiter.ServeHTTP(w, r, next)
}

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	if h.limiter == nil {
		return nil
	}
	apps.Of(h.app.process).leave(h.limiter)
	return h.app.registry.Leave(h.limiter)
}

// Interface guards
var (
	_ caddy.Module                = (*Handler)(nil)
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)

// wantHeaders says what a value of the option headers may be.
var wantHeaders = option.Or(limiter.HeaderFormats())

// checkHeaders checks a value of the option headers. Empty means the default.
func checkHeaders(s string) error {
	if s == "" || slices.Contains(limiter.HeaderFormats(), s) {
		return nil
	}
	return fmt.Errorf("headers %q: want %s", s, wantHeaders)
}
