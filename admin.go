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
	caddy.RegisterModule(new(adminAPI))
}

// adminAPI adds routes about rate limits, below /rate_limit/, to Caddy's admin
// endpoint. Caddy controls access to them by the endpoint's address, its origins and,
// for a remote endpoint, its access control.
type adminAPI struct {
	process *process.Process
	api     admin.API
}

// CaddyModule returns the Caddy module information.
func (*adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.rate_limit", New: func() caddy.Module { return new(adminAPI) }}
}

// Provision implements caddy.Provisioner.
func (a *adminAPI) Provision(ctx caddy.Context) error {
	a.process = process.Of(ctx)
	return nil
}

// Routes implements caddy.AdminRouter. Caddy calls it before Provision.
func (a *adminAPI) Routes() []caddy.AdminRoute {
	a.api.Running = func() (*admin.Instance, <-chan struct{}) { return running.Of(a.process).watch() }
	serve := func(w http.ResponseWriter, r *http.Request) error {
		return a.api.Serve(w, r, strings.TrimPrefix(r.URL.Path, cli.Prefix), false)
	}
	return []caddy.AdminRoute{{Pattern: cli.Prefix, Handler: caddy.AdminHandlerFunc(serve)}}
}

// Interface guards
var (
	_ caddy.Module      = (*adminAPI)(nil)
	_ caddy.Provisioner = (*adminAPI)(nil)
	_ caddy.AdminRouter = (*adminAPI)(nil)
)
