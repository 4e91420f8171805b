// Package admin answers the admin API of Caddy's endpoint, and of the live page.
//
// Nothing here is on the way of a request.
package admin

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/configure/names"
	"github.com/dianalimiter/diana/internal/ops/page"
	"github.com/dianalimiter/diana/internal/ops/running"
)

// API answers requests about the instance whose configuration runs.
//
//	GET    /rate_limit/                     the live page
//	GET    /rate_limit/zones                active rules, stores and counts; with ?fleet of all instances, as top
//	GET    /rate_limit/live                 the same, and the history, as they change
//	GET    /rate_limit/history              decisions of the last five minutes, hour or day, by zone
//	GET    /rate_limit/zones/<zone>/key     the state of a key; nothing is charged
//	DELETE /rate_limit/zones/<zone>/key     resets a key on all instances
//	GET    /rate_limit/zones/<zone>/top     busiest, most denied and most costly keys
//	GET    /rate_limit/top                  the same of all zones that have met requests
//	GET    /rate_limit/zones/<zone>/spend   what its requests cost, by the values of group_by; with ?fleet of all instances
//	GET    /rate_limit/spend                the same of all zones with group_by
//	GET    /rate_limit/keys                 a key in all zones that have counted it; with ?fleet of all instances
//	GET    /rate_limit/exceptions           what block and allow have set and has not ended
//	POST   /rate_limit/explain              the decision about a described request
//	POST   /rate_limit/rules/validate       whether a document of rules is valid
//	GET    /rate_limit/rules                the document of the source of rules
//	PUT    /rate_limit/rules                replaces it
//	GET    /rate_limit/rules/changes        the changes of it, and the document before it
//	POST   /rate_limit/rules/edit           the document after edits; nothing is written
type API struct {
	// Running returns the instance whose configuration runs, nil if there is none, and a
	// channel that is closed when another configuration runs.
	Running func() (*running.Instance, <-chan struct{})

	// File is whether the configuration does not run: it was read from a file.
	File bool

	// streams is how many streams are open. Each API has a bound of its own, so that who may
	// see a page in a site cannot close the page of the admin endpoint.
	streams atomic.Int32

	mu  sync.Mutex
	now *zonesNow // as the last stream sent them; nil: none was sent
}

// errNotConfigured returns the answer of an instance without rate limits.
func errNotConfigured() error {
	return apiError(http.StatusNotFound, fmt.Errorf("no %[1]s runs in this configuration: a site gets one by a line such as %[1]s {client_ip} 10/s", names.Usual()))
}

// Serve answers a request. rest is the rest of its path, behind /rate_limit/; empty: the live
// page. With readOnly, it refuses to change anything.
func (api *API) Serve(w http.ResponseWriter, r *http.Request, rest string, readOnly bool) error {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if rest == "" {
		return servePage(w, r)
	}
	path := strings.Split(rest, "/")
	now, changed := api.Running()
	if now == nil {
		return errNotConfigured()
	}
	in := instance{now}
	switch {
	case len(path) == 1 && path[0] == "live":
		return api.serveLive(w, r, in, changed, readOnly)
	case len(path) == 1 && path[0] == "zones":
		return answerGet(w, r, func() (any, error) {
			if r.URL.Query().Has("fleet") {
				return in.answerFleetZones(r.Context()), nil
			}
			return in.answerZones(), nil
		})
	case len(path) == 1 && path[0] == "history":
		return answerGet(w, r, func() (any, error) { return in.answerHistory(r.URL.Query()) })
	case len(path) == 1 && path[0] == "keys":
		return answerGet(w, r, func() (any, error) { return in.searchKey(r.Context(), r.URL.Query()) })
	case len(path) == 1 && path[0] == "exceptions":
		return answerGet(w, r, func() (any, error) { return in.answerExceptions(r.URL.Query()) })
	case len(path) == 1 && path[0] == "explain":
		return api.explain(w, r, in)
	case len(path) == 1 && path[0] == "rules" && !readOnly:
		return api.rules(w, r, documents(in), "")
	case len(path) == 2 && path[0] == "rules" && path[1] == "validate" && !readOnly:
		return api.validate(w, r, documents(in))
	case len(path) == 2 && path[0] == "rules" && (path[1] == "changes" || path[1] == "edit") && !readOnly:
		return api.rules(w, r, documents(in), path[1])
	case len(path) == 1 && path[0] == "top":
		return answerGet(w, r, func() (any, error) {
			if r.URL.Query().Has("fleet") {
				return in.answerFleetTops(r.Context()), nil
			}
			return in.answerTops(), nil
		})
	case len(path) == 1 && path[0] == "spend":
		return answerGet(w, r, func() (any, error) { return in.answerSpends(r.Context(), r.URL.Query().Has("fleet")), nil })
	case len(path) == 3 && path[0] == "zones" && path[2] == "spend":
		return answerGet(w, r, func() (any, error) { return in.answerSpend(r.Context(), path[1], r.URL.Query().Has("fleet")) })
	case len(path) == 3 && path[0] == "zones" && path[2] == "key":
		if readOnly && r.Method == http.MethodDelete {
			return wrongMethod(w, r, "GET")
		}
		return api.key(w, r, in, path[1])
	case len(path) == 3 && path[0] == "zones" && path[2] == "top":
		return answerGet(w, r, func() (any, error) {
			z := in.Registry.Zone(path[1])
			switch {
			case z == nil:
				return nil, noZone(in, path[1])
			case r.URL.Query().Has("fleet"):
				f, counted := in.fleet(r.Context())
				t := fleetTop(z.Name, byZone(counted)[z.Name])
				t.Fleet = &f
				return t, nil
			}
			return answerTop(z), nil
		})
	}
	return apiError(http.StatusNotFound, fmt.Errorf("%s: no such endpoint: want zones, live, history, keys, exceptions, top, spend, zones/<zone>/key, zones/<zone>/top, zones/<zone>/spend, explain, rules, rules/validate, rules/changes or rules/edit", r.URL.EscapedPath()))
}

// key serves the state of the key in the query, or resets the key.
func (api *API) key(w http.ResponseWriter, r *http.Request, in instance, zone string) error {
	z := in.Registry.Zone(zone)
	if z == nil {
		return noZone(in, zone)
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
		return answerJSON(w, z.Peek(r.Context(), t))
	case http.MethodDelete:
		return answerJSON(w, in.reset(r.Context(), z, t))
	}
	return wrongMethod(w, r, "GET, DELETE")
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
