package diana

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/logs"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/page"
)

func init() {
	caddy.RegisterModule((*adminAPI)(nil))
}

// adminAPI is what Caddy's admin endpoint answers about rate limits, below
// /rate_limit/. Who may ask is Caddy's to say: by its address, its origins and,
// for a remote endpoint, its access control.
//
//	GET    /rate_limit/                     a live page
//	GET    /rate_limit/zones                rules in force, stores, counts
//	GET    /rate_limit/history              what zones let pass and denied in the last minutes
//	GET    /rate_limit/zones/<zone>/key     where a key stands; nothing is charged
//	DELETE /rate_limit/zones/<zone>/key     forgets a key, everywhere
//	GET    /rate_limit/zones/<zone>/top     busiest and most denied keys
//	POST   /rate_limit/explain              what would become of a request
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (*adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.rate_limit", New: func() caddy.Module { return new(adminAPI) }}
}

// Routes implements caddy.AdminRouter.
func (api *adminAPI) Routes() []caddy.AdminRoute {
	return []caddy.AdminRoute{{Pattern: cli.Prefix, Handler: caddy.AdminHandlerFunc(api.serve)}}
}

// serve finds the endpoint. Only exact paths are answered.
func (api *adminAPI) serve(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.URL.Path == cli.Prefix {
		return servePage(w, r)
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, cli.Prefix), "/")
	app := running.current()
	if app == nil {
		return adminError(http.StatusNotFound, errors.New("no rate_limit runs in this configuration"))
	}
	switch {
	case len(path) == 1 && path[0] == "zones":
		return answerGet(w, r, func() (any, error) { return app.answerZones(), nil })
	case len(path) == 1 && path[0] == "history":
		return answerGet(w, r, func() (any, error) {
			zones, since, err := historyQuery(r.URL.Query())
			if err != nil {
				return nil, adminError(http.StatusBadRequest, err)
			}
			return history.Since(zones, since), nil
		})
	case len(path) == 1 && path[0] == "explain":
		return api.explain(w, r, app)
	case len(path) == 3 && path[0] == "zones" && path[2] == "key":
		return api.key(w, r, app, path[1])
	case len(path) == 3 && path[0] == "zones" && path[2] == "top":
		return answerGet(w, r, func() (any, error) {
			if z := app.registry.Zone(path[1]); z != nil {
				return answerTop(z), nil
			}
			return nil, noZone(path[1])
		})
	}
	return adminError(http.StatusNotFound, fmt.Errorf("%s: no such endpoint: want zones, history, zones/<zone>/key, zones/<zone>/top or explain", r.URL.EscapedPath()))
}

// key answers for, or resets, the key that a query names.
func (api *adminAPI) key(w http.ResponseWriter, r *http.Request, app *App, zone string) error {
	z := app.registry.Zone(zone)
	if z == nil {
		return noZone(zone)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return adminError(http.StatusBadRequest, err)
	}
	t, err := targetIn(z, q)
	if err != nil {
		return adminError(http.StatusBadRequest, err)
	}
	switch r.Method {
	case http.MethodGet:
		return answerJSON(w, answerKey(z.Peek(r.Context(), t)))
	case http.MethodDelete:
		return answerJSON(w, app.reset(r.Context(), z, t))
	}
	return wrongMethod(w, "GET, DELETE")
}

func answerGet(w http.ResponseWriter, r *http.Request, get func() (any, error)) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return wrongMethod(w, "GET")
	}
	v, err := get()
	if err != nil {
		return err
	}
	return answerJSON(w, v)
}

// answerJSON writes JSON in which nothing can be taken for HTML.
func answerJSON(w http.ResponseWriter, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	if _, numbers := v.(metrics.Minutes); !numbers { // which would stand one to a line
		enc.SetIndent("", " ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, err := w.Write(b.Bytes())
	return err
}

// servePage sends the live page. Caddy's admin endpoint answers a browser only
// from its own origin, which the page's own requests name by their referrer.
func servePage(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return wrongMethod(w, "GET")
	}
	file := page.Get()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", file.Policy)
	h.Set("Referrer-Policy", "same-origin")
	_, err := w.Write(file.HTML)
	return err
}

func noZone(name string) error {
	return adminError(http.StatusNotFound, fmt.Errorf("zone %q: there is none of this name", name))
}

func wrongMethod(w http.ResponseWriter, allow string) error {
	w.Header().Set("Allow", allow)
	return adminError(http.StatusMethodNotAllowed, errors.New("want "+allow))
}

func adminError(status int, err error) error {
	return caddy.APIError{HTTPStatus: status, Err: errors.New(logs.Short(err))}
}

var (
	_ caddy.Module      = (*adminAPI)(nil)
	_ caddy.AdminRouter = (*adminAPI)(nil)
)
