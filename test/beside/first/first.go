// Package first is a plugin that takes the name rate_limit before Diana is initialized: packages are
// initialized in the order of their import paths.
package first

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	caddy.RegisterModule(new(Handler))
	httpcaddyfile.RegisterHandlerDirective("rate_limit", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return new(Handler), nil
	})
	httpcaddyfile.RegisterDirectiveOrder("rate_limit", httpcaddyfile.Before, "basic_auth")
}

// Handler sets a header, so that requests show which handler rate_limit is.
type Handler struct{}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit", New: func() caddy.Module { return new(Handler) }}
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (*Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	w.Header().Set("Theirs", "yes")
	return next.ServeHTTP(w, r)
}
