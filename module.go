// Package diana is a Caddy plugin that limits how often requests may pass, alone
// on one machine or shared by many instances through Redis.
package diana

import (
	"encoding/json"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/limiter"
)

func init() {
	caddy.RegisterModule((*Handler)(nil))
	caddy.RegisterModule((*App)(nil))
}

// Handler limits how often requests may pass. All rules of all zones that
// match a request are judged at one instant, and only if all admit it is any
// charged. A denied request changes nothing.
//
// A denied request ends with the error 429, which the site's error routes can
// answer, with Retry-After.
//
// Placeholders:
//
// Placeholder | Description
// ------------|------------
// `{http.rate_limit.exceeded.name}` | The zone that denied the request
// `{http.rate_limit.exceeded.rule}` | The rule that denied it, by name or number
// `{http.rate_limit.exceeded.retry_after}` | The seconds after which it would pass
// `{http.rate_limit.<zone>.limit}` | The limit of the zone's rule that is nearest to its limit
// `{http.rate_limit.<zone>.remaining}` | What could still pass by that rule
// `{http.rate_limit.<zone>.reset}` | The seconds until that rule is as if unused
// `{http.rate_limit.<zone>.decision}` | What the zone decided: allowed, delayed, denied, skipped, shadow_denied or refused_elsewhere
type Handler struct {
	// The zones, in the order in which a denial is looked for.
	Zones []*config.Zone `json:"zones,omitempty"`

	// The headers that tell clients where they stand: "draft" (RateLimit and
	// RateLimit-Policy), "legacy" (X-RateLimit-*), "all" or "off". Default:
	// what the app says.
	Headers string `json:"headers,omitempty"`

	// Lengthen Retry-After at random by up to this fraction, 0 to 1, so that
	// denied clients do not all come back at once. Default: 0.
	Jitter float64 `json:"jitter,omitempty"`

	// Write the key into log lines about denied requests. Default: false.
	LogKey bool `json:"log_key,omitempty"`

	// Leave this handler's requests out of the metrics. Default: false.
	DisableMetrics bool `json:"disable_metrics,omitempty"`

	// The status of denied requests that no zone answers in its own way, 400 to
	// 599 or 200. Default: 429.
	RejectStatus int `json:"reject_status,omitempty"`

	// More zones, by name, as github.com/mholt/caddy-ratelimit has them. They
	// follow the others, the one that admits the most in its window first. In
	// their names other characters than those of a zone's name become "_".
	RateLimits map[string]*config.Zone `json:"rate_limits,omitempty"`

	// That plugin's distributed mode: the zones must be counted in a Redis, which
	// is one of the app's stores. Its intervals mean nothing here.
	Distributed *config.Distributed `json:"distributed,omitempty"`

	// Read and ignored: what is over is forgotten without being swept.
	SweepInterval caddy.Duration `json:"sweep_interval,omitempty"`

	// Read and ignored: counts are shared through the app's stores.
	Storage json.RawMessage `json:"storage,omitempty"`

	// With rate, one zone as github.com/RussellLuo/caddy-ext/ratelimit has it:
	// what it counts by, such as "{query.id}". A request without it passes.
	Key string `json:"key,omitempty"`

	// The rate of that zone, such as "10r/s".
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

// App holds what all rate_limit handlers of a configuration share: the stores,
// and their defaults.
type App struct {
	// Stores that instances share. The first is what zones use that name none.
	// Default: none; the counts are kept in this process.
	Stores []*config.RedisStore `json:"stores,omitempty"`

	// How many keys are kept in this process at most, per zone. Default:
	// 1000000.
	MaxKeys int64 `json:"max_keys,omitempty"`

	// The headers that tell clients where they stand, where a handler does not
	// say: "draft", "legacy", "all" or "off". Default: "draft".
	Headers string `json:"headers,omitempty"`

	// Rules from outside, which win over those of the zones: a module that says
	// where they are. Default: none.
	RulesRaw json.RawMessage `json:"rules,omitempty" caddy:"namespace=http.rate_limit.rule_sources inline_key=source"`

	appState
}

// CaddyModule returns the Caddy module information.
func (*App) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "rate_limit", New: func() caddy.Module { return new(App) }}
}
