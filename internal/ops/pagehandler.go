package ops

import (
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"regexp"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/ops/admin"
	"github.com/dianalimiter/diana/internal/ops/running"
)

func init() {
	caddy.RegisterModule(new(PageHandler))
	httpcaddyfile.RegisterHandlerDirective("rate_limit_page", parsePage)
	httpcaddyfile.RegisterDirectiveOrder("rate_limit_page", httpcaddyfile.After, "forward_auth")
}

// PageHandler serves the live page about the rate limits of this instance, read-only, in a
// site. It has no options. The Caddyfile orders it after authentication; who may see the page
// sees rules, keys, names of zones, and who blocked or allowed a key, so put it behind basic_auth or forward_auth.
//
// The page is at every path that reaches the handler and ends in "/", and what it asks for is
// beside it. A path below which nothing is served gets a slash appended.
type PageHandler struct{ api admin.API }

// CaddyModule returns the Caddy module information.
func (*PageHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.rate_limit_page", New: func() caddy.Module { return new(PageHandler) }}
}

// Provision implements caddy.Provisioner. The app runs also in a configuration without a
// rate_limit handler, so that the page can say so.
func (h *PageHandler) Provision(ctx caddy.Context) error {
	if _, err := names.App(ctx); err != nil {
		return err
	}
	h.api.Running = running.Of(process.Of(ctx)).Watch
	return nil
}

// parsePage parses the directive rate_limit_page [<matcher>], which has no options.
func parsePage(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h.Next()
	if h.NextArg() || h.NextBlock(0) {
		return nil, h.Errf("rate_limit_page: %q: want nothing but a matcher, such as rate_limit_page /limits*", h.Val())
	}
	return new(PageHandler), nil
}

// pagePath matches the paths of the page and of what it asks for, whatever is before them.
var pagePath = regexp.MustCompile(`(?:^|/)((?:zones/[^/]+/(?:key|top|spend)|zones|live|history|keys|exceptions|explain)?)$`)

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (h *PageHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	m := pagePath.FindStringSubmatch(r.URL.Path)
	if m == nil {
		w.Header().Set("Location", "./"+path.Base(r.URL.EscapedPath())+"/")
		w.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
	err := h.api.Serve(w, r, m[1], true)
	if known, ok := errors.AsType[caddy.APIError](err); ok {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(known.HTTPStatus)
		return json.NewEncoder(w).Encode(map[string]string{"error": known.Err.Error()})
	}
	return err
}

// Interface guards
var (
	_ caddy.Module                = (*PageHandler)(nil)
	_ caddy.Provisioner           = (*PageHandler)(nil)
	_ caddyhttp.MiddlewareHandler = (*PageHandler)(nil)
)
