// Package admin answers the admin API of Caddy's endpoint, and of the live page.
package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/cli"
	"github.com/dianalimiter/diana/internal/loglimit"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/page"
)

// API answers requests about the instance whose configuration runs.
//
//	GET    /rate_limit/                     the live page
//	GET    /rate_limit/zones                active rules, stores and counts
//	GET    /rate_limit/live                 the same, and the history, as they change
//	GET    /rate_limit/history              decisions of the last minutes, by zone
//	GET    /rate_limit/zones/<zone>/key     the state of a key; nothing is charged
//	DELETE /rate_limit/zones/<zone>/key     resets a key on all instances
//	GET    /rate_limit/zones/<zone>/top     busiest and most denied keys
//	POST   /rate_limit/explain              the decision about a described request
//	POST   /rate_limit/rules/validate       whether a document of rules is valid
//	GET    /rate_limit/rules                the document in Redis
//	PUT    /rate_limit/rules                replaces it
type API struct {
	// Running returns the instance whose configuration runs, nil if there is none, and a
	// channel that is closed when another configuration runs.
	Running func() (*Instance, <-chan struct{})
}

// errNotConfigured is the answer of an instance without rate limits.
var errNotConfigured = apiError(http.StatusNotFound, errors.New("no rate_limit runs in this configuration"))

// Serve answers a request. rest is the rest of its path, behind /rate_limit/; empty: the live
// page. With readOnly, it refuses to change anything.
func (api *API) Serve(w http.ResponseWriter, r *http.Request, rest string, readOnly bool) error {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if rest == "" {
		return servePage(w, r)
	}
	path := strings.Split(rest, "/")
	in, _ := api.Running()
	if in == nil {
		return errNotConfigured
	}
	switch {
	case len(path) == 1 && path[0] == "live":
		return api.serveLive(w, r, readOnly)
	case len(path) == 1 && path[0] == "zones":
		return answerGet(w, r, func() (any, error) { return in.answerZones(), nil })
	case len(path) == 1 && path[0] == "history":
		return answerGet(w, r, func() (any, error) {
			zones, since, err := historyQuery(r.URL.Query())
			if err != nil {
				return nil, apiError(http.StatusBadRequest, err)
			}
			return metrics.HistoryOf(in.Process).Since(zones, since), nil
		})
	case len(path) == 1 && path[0] == "explain":
		return api.explain(w, r, in)
	case len(path) == 1 && path[0] == "rules" && !readOnly:
		return api.rules(w, r, in)
	case len(path) == 2 && path[0] == "rules" && path[1] == "validate" && !readOnly:
		return api.validate(w, r, in)
	case len(path) == 3 && path[0] == "zones" && path[2] == "key":
		if readOnly && r.Method == http.MethodDelete {
			return wrongMethod(w, r, "GET")
		}
		return api.key(w, r, in, path[1])
	case len(path) == 3 && path[0] == "zones" && path[2] == "top":
		return answerGet(w, r, func() (any, error) {
			if z := in.Registry.Zone(path[1]); z != nil {
				return answerTop(z), nil
			}
			return nil, noZone(path[1])
		})
	}
	return apiError(http.StatusNotFound, fmt.Errorf("%s: no such endpoint: want zones, live, history, zones/<zone>/key, zones/<zone>/top, explain, rules or rules/validate", r.URL.EscapedPath()))
}

// key serves the state of the key in the query, or resets the key.
func (api *API) key(w http.ResponseWriter, r *http.Request, in *Instance, zone string) error {
	z := in.Registry.Zone(zone)
	if z == nil {
		return noZone(zone)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	t, err := targetIn(z, q)
	if err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	switch r.Method {
	case http.MethodGet:
		return answerJSON(w, answerKey(z.Peek(r.Context(), t)))
	case http.MethodDelete:
		return answerJSON(w, in.reset(r.Context(), z, t))
	}
	return wrongMethod(w, r, "GET, DELETE")
}

func answerGet(w http.ResponseWriter, r *http.Request, get func() (any, error)) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return wrongMethod(w, r, "GET")
	}
	v, err := get()
	if err != nil {
		return err
	}
	return answerJSON(w, v)
}

// checkJSON rejects a body that is not JSON: a page of another origin can send a form
// without a CORS preflight, but not JSON.
func checkJSON(r *http.Request) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return apiError(http.StatusUnsupportedMediaType, fmt.Errorf("Content-Type %q: want application/json", shortened(r.Header.Get("Content-Type"))))
	}
	return nil
}

// answerJSON writes v as JSON, with the characters that are special in HTML escaped.
func answerJSON(w http.ResponseWriter, v any) error { return answerStatus(w, http.StatusOK, v) }

// answerStatus is answerJSON with a status.
func answerStatus(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	switch v.(type) {
	case metrics.Minutes, *cli.Live: // indented, each number would take a line
	default:
		enc.SetIndent("", " ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, err := w.Write(b.Bytes())
	return err
}

// servePage sends the live page. Its Referrer-Policy lets the page's own requests pass
// the origin check of Caddy's admin endpoint.
func servePage(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return wrongMethod(w, r, "GET")
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
	return apiError(http.StatusNotFound, fmt.Errorf("zone %q: there is none of this name", name))
}

func wrongMethod(w http.ResponseWriter, r *http.Request, allow string) error {
	w.Header().Set("Allow", allow)
	return apiError(http.StatusMethodNotAllowed, fmt.Errorf("method %s: want %s", shortened(r.Method), allow))
}

// shortened returns the beginning of what a request says, for an error.
func shortened(text string) string { return text[:min(len(text), 64)] }

func apiError(status int, err error) error {
	return caddy.APIError{HTTPStatus: status, Err: errors.New(loglimit.Short(err))}
}
