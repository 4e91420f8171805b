// Package diana is a Caddy plugin for rate limiting, in one process or shared by many
// instances through Redis.
package diana

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/configure/compat"
	"github.com/dianalimiter/diana/internal/configure/httpapp"
	"github.com/dianalimiter/diana/internal/configure/option"
	"github.com/dianalimiter/diana/internal/configure/warnings"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/follow/lists"
	"github.com/dianalimiter/diana/internal/lib/background"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/limiter"
	_ "github.com/dianalimiter/diana/internal/ops" // registers the tools
	"github.com/dianalimiter/diana/internal/ops/running"
	_ "github.com/dianalimiter/diana/internal/stores/redisconfig" // the store in Redis
)

// Handler limits the rate of requests. The rules of all zones that match a request are
// decided atomically: the request is admitted only if all rules admit it, and only then
// is it charged to them. A denied request changes nothing.
//
// A denied request results in the error 429, with the header Retry-After. Error routes
// can handle it.
//
// Placeholders:
//
// Placeholder | Description
// ------------|------------
// `{http.rate_limit.exceeded.name}` | The zone that denied the request
// `{http.rate_limit.exceeded.rule}` | The rule that denied it, by name or number
// `{http.rate_limit.exceeded.cause}` | Why it did: `rule`, `blocked`, `in_flight`, `duplicate`, `key_missing`, `key_repeated`, `held`, `too_large`, `share`, `overflow`, `waiting`, `store` or `overload`
// `{http.rate_limit.exceeded.retry_after}` | The seconds until it would be admitted, rounded up
// `{http.rate_limit.exceeded.retry_after_ms}` | The same in milliseconds, rounded up
// `{http.rate_limit.<zone>.limit}` | The limit of the zone's rule with the smallest part of its limit left
// `{http.rate_limit.<zone>.burst}` | The cost that this rule admits at once if it is unused: its limit, or its burst
// `{http.rate_limit.<zone>.remaining}` | The cost that this rule would still admit
// `{http.rate_limit.<zone>.used}` | The cost that it has admitted of what it admits at once
// `{http.rate_limit.<zone>.reset}` | The seconds until this rule has its whole limit left again
// `{http.rate_limit.<zone>.decision}` | The zone's decision: allowed, delayed, denied, skipped, shadow_denied, shadow_delayed, denied_elsewhere or left
//
// They are set if the configuration names one of them, or has templates or a handler that
// does not come with Caddy.
type Handler struct {
	// The zones, in the order in which they are evaluated. Default: none.
	Zones []*config.Zone `json:"zones,omitempty"`

	// The rate limit headers of responses: "draft" (RateLimit and RateLimit-Policy),
	// "legacy" (X-RateLimit-*), "all" (both), "openai" (x-ratelimit-limit-tokens, for zones
	// with tokens or settle, and x-ratelimit-limit-requests for others, each with -remaining-
	// and -reset-, and retry-after-ms) or "off". Default: the headers of the app.
	Headers string `json:"headers,omitempty"`

	// The fraction, 0 to 1, by which Retry-After is lengthened at random at most, so
	// that denied clients do not all retry at once. Default: 0.
	Jitter float64 `json:"jitter,omitempty"`

	// Log the keys of denied requests. Default: false.
	LogKey bool `json:"log_key,omitempty"`

	// Leave the zones of this handler out of the metrics. Default: false.
	DisableMetrics bool `json:"disable_metrics,omitempty"`

	// The status code of denied requests, unless the zone has a respond: 400 to 599,
	// or 200. Default: 429.
	RejectStatus int `json:"reject_status,omitempty"`

	// More zones, by name, with the options of github.com/mholt/caddy-ratelimit. They
	// are evaluated after zones, by descending rate. A name that is invalid for a zone is
	// replaced. Default: none.
	RateLimits map[string]*config.Zone `json:"rate_limits,omitempty"`

	// The distributed mode of that plugin. It requires one of the app's Redis stores;
	// its intervals are ignored. Default: off.
	Distributed *compat.Distributed `json:"distributed,omitempty"`

	// Accepted for compatibility and ignored: expired state needs no sweep.
	// Default: none.
	SweepInterval caddy.Duration `json:"sweep_interval,omitempty"`

	// Accepted for compatibility and ignored: counts are shared through the app's
	// stores. Default: none.
	Storage json.RawMessage `json:"storage,omitempty"`

	// The key of a zone with the options of github.com/RussellLuo/caddy-ext/ratelimit,
	// such as "{query.id}". Requests without it pass uncounted. Requires rate.
	// Default: off.
	Key string `json:"key,omitempty"`

	// The rate of that zone, such as "10r/s". Requires key.
	// Default: none.
	Rate string `json:"rate,omitempty"`

	// The max_keys of that zone. Default: the app's max_keys.
	ZoneSize int64 `json:"zone_size,omitempty"`

	app     *App
	logger  *zap.Logger
	limiter *limiter.Limiter
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit", New: func() caddy.Module { return new(Handler) }}
}

// UnmarshalJSON implements json.Unmarshaler: errors say what a misspelt member was meant to be.
func (h *Handler) UnmarshalJSON(text []byte) error {
	type plain Handler
	return option.Unmarshal(text, (*plain)(h))
}

// App configures what all rate_limit handlers share: the stores, the rule source and
// defaults.
type App struct {
	// The stores in which instances share their counts. Zones that name no store use
	// the first. Without "store" in it, one is a Redis. Default: none; counts are kept in this
	// process.
	StoresRaw []json.RawMessage `json:"stores,omitempty" caddy:"namespace=http.rate_limit.stores inline_key=store"`

	// The greatest number of keys kept in this process for each zone, at most 1,073,741,824.
	// Default: 1000000.
	MaxKeys int64 `json:"max_keys,omitempty"`

	// The rate limit headers of responses, for handlers without the option. Default: "draft".
	Headers string `json:"headers,omitempty"`

	// The rule source: a module that provides rules which replace those of the zones
	// at run time. Default: none.
	RulesRaw json.RawMessage `json:"rules,omitempty" caddy:"namespace=http.rate_limit.rule_sources inline_key=source"`

	appState
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "rate_limit", New: func() caddy.Module { return new(App) }}
}

// UnmarshalJSON implements json.Unmarshaler, as that of [Handler] does.
func (a *App) UnmarshalJSON(text []byte) error {
	type plain App
	return option.Unmarshal(text, (*plain)(a))
}

// appState is the state of a provisioned app.
type appState struct {
	ctx      caddy.Context
	process  *process.Process
	logger   *zap.Logger
	lists    *lists.Lists
	env      limiter.Environment
	registry *limiter.Registry
	stores   storeList
	follower *follow.Follower // nil: no rule source is configured
	refs     pool.References

	// Code of others runs here, so that no request, store or lock waits for it. Events
	// have a queue of their own: their handlers may be slow, and log lines are urgent.
	events, lines *background.Queue

	warned    map[string]bool // see App.warn
	http      *httpapp.Config // see App.httpConfig
	autoNames map[string]int  // number of zones by automatic name

	errorRoutes errorRoutes

	instance *running.Instance // for the tools and the metrics

	started time.Time // of the configuration
	quotas  []*QuotaHandler
	hash    running.Hash // of the app and its handlers
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

// httpConfig returns what the configuration of a handler says of the app http. It is read for the first one.
func (a *App) httpConfig(ctx caddy.Context) *httpapp.Config {
	if a.http == nil {
		a.http = httpapp.Of(ctx)
	}
	return a.http
}

// warnTo returns a function that calls warn with a logger.
func (a *App) warnTo(l *zap.Logger) warnings.Warn {
	return func(msg string, fields ...zap.Field) { a.warn(l, msg, fields...) }
}

// warn logs a warning once per configuration, however many handlers have the same.
func (a *App) warn(l *zap.Logger, msg string, fields ...zap.Field) {
	id := msg
	for _, f := range fields {
		id += "\n" + f.String
	}
	if !a.warned[id] {
		a.warned[id] = true
		l.Warn(msg, fields...)
	}
}
