// Package redisrate provides a minimal Caddy handler around
// github.com/go-redis/redis_rate: one script call per request, alone or with those of concurrent
// requests.
package redisrate

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("redis_rate", parse)
	httpcaddyfile.RegisterDirectiveOrder("redis_rate", httpcaddyfile.Before, "basic_auth")
}

// Handler limits the requests per second of each key by GCRA in Redis.
type Handler struct {
	// The address of Redis, host:port.
	Address string `json:"address"`

	// The key that identifies clients.
	Key string `json:"key"`

	// The number of requests per second.
	Rate int `json:"rate"`

	// How the calls of concurrent requests are sent: "" one over each connection, "autopipeline" together, or "full_duplex"
	// together without waiting for the replies to those before.
	Together string `json:"together,omitempty"`

	client  *redis.Client
	limiter *redis_rate.Limiter
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.redis_rate", New: func() caddy.Module { return new(Handler) }}
}

// Provision implements caddy.Provisioner.
func (h *Handler) Provision(caddy.Context) error {
	if h.Rate < 1 {
		return fmt.Errorf("rate %d: want at least 1", h.Rate)
	}
	h.client = redis.NewClient(&redis.Options{Addr: h.Address})
	h.limiter = redis_rate.NewLimiter(h.client)
	if h.Together == "" {
		return nil
	}
	o := redis.DefaultBlockingAutoPipelineOptions()
	o.FullDuplex = h.Together == "full_duplex"
	together, err := h.client.AutoPipelineWithOptions(o)
	if err == nil {
		h.limiter = redis_rate.NewLimiter(together)
	}
	return err
}

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	if h.client == nil {
		return nil
	}
	return h.client.Close()
}

var errExceeded = errors.New("rate limit exceeded")

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	res, err := h.limiter.Allow(r.Context(), repl.ReplaceAll(h.Key, ""), redis_rate.PerSecond(h.Rate))
	if err != nil {
		return caddyhttp.Error(http.StatusInternalServerError, err)
	}
	if res.Allowed == 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(res.RetryAfter/time.Second))))
		return caddyhttp.Error(http.StatusTooManyRequests, errExceeded)
	}
	return next.ServeHTTP(w, r)
}

// parse parses redis_rate <address> <key> <rate> [autopipeline|full_duplex].
func parse(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	var rate string
	c := new(Handler)
	h.Next()
	if !h.Args(&c.Address, &c.Key, &rate) {
		return nil, h.ArgErr()
	}
	if h.NextArg() {
		c.Together = h.Val()
	}
	if c.Together != "" && c.Together != "autopipeline" && c.Together != "full_duplex" || h.NextArg() {
		return nil, h.ArgErr()
	}
	n, err := strconv.Atoi(rate)
	if err != nil {
		return nil, h.Errf("rate %q: want a number of requests a second", rate)
	}
	c.Rate = n
	return c, nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
