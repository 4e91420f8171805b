package diana

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/admin"
	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/process"
)

func init() {
	caddy.RegisterModule((*adminAPI)(nil))
}

// adminAPI adds routes about rate limits, below /rate_limit/, to Caddy's admin
// endpoint. Caddy controls access to them by the endpoint's address, its origins and,
// for a remote endpoint, its access control.
type adminAPI struct{ process *process.Process }

// CaddyModule returns the Caddy module information.
func (*adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.rate_limit", New: func() caddy.Module { return new(adminAPI) }}
}

// Provision implements caddy.Provisioner.
func (api *adminAPI) Provision(ctx caddy.Context) error {
	api.process = process.Of(ctx)
	return nil
}

// Routes implements caddy.AdminRouter. Caddy calls it before Provision.
func (api *adminAPI) Routes() []caddy.AdminRoute {
	serve := func(w http.ResponseWriter, r *http.Request) error {
		all := admin.API{Running: running.Of(api.process).watch}
		return all.Serve(w, r, strings.TrimPrefix(r.URL.Path, cli.Prefix), false)
	}
	return []caddy.AdminRoute{{Pattern: cli.Prefix, Handler: caddy.AdminHandlerFunc(serve)}}
}

// Interface guards
var (
	_ caddy.Module      = (*adminAPI)(nil)
	_ caddy.Provisioner = (*adminAPI)(nil)
	_ caddy.AdminRouter = (*adminAPI)(nil)
)
