// Package diana is a Caddy plugin that limits how often requests may pass, alone
// on one machine or shared by many instances through Redis.
package diana

import (
	"github.com/caddyserver/caddy/v2"
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
	Zones []*Zone `json:"zones,omitempty"`

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

	handlerState
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit", New: func() caddy.Module { return new(Handler) }}
}
