// Package ops brings the tools: the admin API, the live page, the command line, explain and replay. They
// read what internal/ops/running shows of an instance.
//
// Nothing in this package or below it is on the way of a request, but for the handler of the page.
package ops

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/lib/process"
	"github.com/dianalimiter/diana/internal/ops/admin"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/ops/running"
)

func init() {
	caddy.RegisterModule(new(adminAPI))
	running.Tools.Started, running.Tools.Figures = admin.LogReplaced, admin.Figures
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
	names.Report(ctx.Logger())
	return nil
}

// Routes implements caddy.AdminRouter. Caddy calls it before Provision.
func (a *adminAPI) Routes() []caddy.AdminRoute {
	a.api.Running = func() (*running.Instance, <-chan struct{}) { return running.Of(a.process).Watch() }
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
