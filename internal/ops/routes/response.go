package routes

import (
	"maps"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/configure/caddyfields"
)

// responses returns what runs in the place of the routes in the handle_response of a handler.
func (w *Way) responses(h caddyhttp.MiddlewareHandler) (list []caddyhttp.Handler, err error) {
	handlers := caddyfields.Responses(h)
	if n, ok := h.(*notRun); ok {
		handlers = n.responses
	}
	for i := range handlers {
		routes, err := w.list(handlers[i].Routes)
		if err != nil {
			return nil, err
		}
		list = append(list, routes.Compile(end))
	}
	return list, nil
}

// respond leads the request through the routes for responses of a handler. What they change is undone:
// which response there will be, and so which of them are taken, is unknown.
func (w *Way) respond(name string, responses []caddyhttp.Handler, rw http.ResponseWriter, r *http.Request) {
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	before, around, notRun, maySet := *r, w.Response, len(w.NotRun), len(w.MaySet)
	header, u, set := r.Header.Clone(), *r.URL, maps.Clone(vars)
	w.Response = name
	for _, h := range responses {
		_ = h.ServeHTTP(rw, r) // an error is the response
		r.Method, r.Host, r.RequestURI, r.RemoteAddr, *r.URL = before.Method, before.Host, before.RequestURI, before.RemoteAddr, u
		clear(r.Header)
		maps.Copy(r.Header, header.Clone())
		clear(vars)
		maps.Copy(vars, set)
		w.NotRun, w.MaySet = w.NotRun[:notRun], w.MaySet[:maySet]
	}
	w.Response = around
}
