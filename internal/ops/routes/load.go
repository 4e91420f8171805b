package routes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/ops/running"
)

// Texts are texts of a configuration, as JSON.
type Texts struct {
	// To are, by handler that was kept, the matchers of the routes that lead to it.
	To map[caddyhttp.MiddlewareHandler][]json.RawMessage

	// Changing are the options of the handlers that run.
	Changing []json.RawMessage

	// Leads are the routes with matchers that lead to handlers that were kept.
	Leads map[*caddyhttp.Route]*Lead
}

// Lead is a route that leads to handlers.
type Lead struct {
	// Sets are its sets of matchers, by the matcher's name.
	Sets []map[string]json.RawMessage

	// To are the handlers.
	To []caddyhttp.MiddlewareHandler
}

// Load provisions the routes of the HTTP app in a configuration as far as a [Way] needs them: the
// matchers, the handlers that run, and the handlers that define names. It opens nothing.
func Load(ctx caddy.Context, app json.RawMessage, keep func(name string) bool) (map[string]*caddyhttp.Server, *Texts, error) {
	var config struct{ Servers map[string]*caddyhttp.Server }
	if len(app) == 0 {
		return nil, nil, nil
	}
	if err := json.Unmarshal(app, &config); err != nil {
		return nil, nil, fmt.Errorf("http: %w", err)
	}
	l := loader{ctx: ctx, keep: keep, Texts: Texts{To: make(map[caddyhttp.MiddlewareHandler][]json.RawMessage), Leads: make(map[*caddyhttp.Route]*Lead)}}
	for name, s := range config.Servers {
		within := ctx
		within.Context = running.WithServer(ctx.Context, name)
		l.ctx = within
		lists := []caddyhttp.RouteList{s.Routes}
		if s.Errors != nil {
			lists = append(lists, s.Errors.Routes)
		}
		for _, list := range lists {
			if err := l.list(list); err != nil {
				return nil, nil, fmt.Errorf("server %s: %w", name, err)
			}
		}
		for route, r := range s.NamedRoutes {
			if err := l.route(r); err != nil {
				return nil, nil, fmt.Errorf("server %s: named route %s: %w", name, route, err)
			}
		}
	}
	return config.Servers, &l.Texts, nil
}

type loader struct {
	ctx  caddy.Context
	keep func(name string) bool
	Texts
	matchers []json.RawMessage // of the routes around
	around   []*Lead           // those of the routes around that have matchers
}

func (l *loader) list(routes caddyhttp.RouteList) error {
	for i := range routes {
		if err := l.route(&routes[i]); err != nil {
			return fmt.Errorf("route %d: %w", i+1, err)
		}
	}
	return nil
}

func (l *loader) route(r *caddyhttp.Route) error {
	matchers, around := l.matchers, l.around
	defer func() { l.matchers, l.around = matchers, around }()
	if len(r.MatcherSetsRaw) > 0 {
		lead := new(Lead)
		for _, set := range r.MatcherSetsRaw {
			lead.Sets = append(lead.Sets, set)
		}
		l.Leads[r], l.around = lead, append(slices.Clip(l.around), lead)
	}
	for _, set := range r.MatcherSetsRaw {
		text, err := json.Marshal(set)
		if err != nil {
			return err
		}
		l.matchers = append(slices.Clip(l.matchers), text)
	}
	if err := r.ProvisionMatchers(l.ctx); err != nil {
		return err
	}
	for _, raw := range r.HandlersRaw {
		h, err := l.handler(raw)
		if err != nil {
			return err
		}
		r.Handlers = append(r.Handlers, h)
	}
	r.HandlersRaw = nil
	return nil
}

func (l *loader) handler(raw json.RawMessage) (caddyhttp.MiddlewareHandler, error) {
	var options map[string]json.RawMessage
	if err := json.Unmarshal(raw, &options); err != nil {
		return nil, err
	}
	var name string
	if err := json.Unmarshal(options["handler"], &name); err != nil {
		return nil, fmt.Errorf("handler: %w", err)
	}
	delete(options, "handler")
	id := "http.handlers." + name
	switch {
	case name == "subroute":
		s := new(caddyhttp.Subroute)
		if err := json.Unmarshal(raw, s); err != nil {
			return nil, err
		}
		if err := l.list(s.Routes); err != nil || s.Errors == nil {
			return s, err
		}
		return s, l.list(s.Errors.Routes)
	case !slices.Contains(runs, name) && name != "invoke" && !l.keep(name):
		if _, err := caddy.GetModule(id); err != nil {
			return nil, err
		}
		n := &notRun{name: name, answers: string(options["pass_thru"]) != "true" && options["handle_response"] == nil, sets: headersSet(raw)}
		return n, l.responses(n, options["handle_response"])
	}
	text, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	v, err := l.ctx.LoadModuleByID(id, text)
	if err != nil {
		return nil, err
	}
	h, ok := v.(caddyhttp.MiddlewareHandler)
	if !ok {
		return nil, fmt.Errorf("%s is no handler", id)
	}
	if l.keep(name) {
		l.To[h] = slices.Clip(l.matchers)
		for _, lead := range l.around {
			lead.To = append(lead.To, h)
		}
	} else {
		l.Changing = append(l.Changing, text)
	}
	return h, nil
}

// responses loads the routes in the handle_response of a handler that is not run.
func (l *loader) responses(n *notRun, list json.RawMessage) error {
	if list == nil {
		return nil
	}
	if err := json.Unmarshal(list, &n.responses); err != nil {
		return fmt.Errorf("%s: handle_response: %w", n.name, err)
	}
	for i := range n.responses {
		if err := l.list(n.responses[i].Routes); err != nil {
			return fmt.Errorf("%s: handle_response %d: %w", n.name, i+1, err)
		}
	}
	return nil
}

// notRun stands in the place of a handler that is not provisioned.
type notRun struct {
	name    string
	answers bool     // if it is one that answers requests: whether it answers all
	sets    []string // the headers of the request that it may set

	responses []caddyhttp.ResponseHandler // what handles responses within it
}

// headersSet returns the headers that a handler may set or add, wherever its options name them: those
// of the request, which forward_auth copies, and of the response.
func headersSet(options json.RawMessage) (headers []string) {
	var part any
	if json.Unmarshal(options, &part) == nil {
		addHeaders(&headers, part)
	}
	return headers
}

func addHeaders(headers *[]string, part any) {
	switch part := part.(type) {
	case []any:
		for _, v := range part {
			addHeaders(headers, v)
		}
	case map[string]any:
		for name, v := range part {
			if fields, ok := v.(map[string]any); ok && (name == "set" || name == "add") {
				for field := range fields {
					*headers = append(*headers, http.CanonicalHeaderKey(field))
				}
			}
			addHeaders(headers, v)
		}
	}
}

// CaddyModule implements caddy.Module.
func (n *notRun) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: caddy.ModuleID("http.handlers." + n.name)}
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (*notRun) ServeHTTP(rw http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(rw, r)
}
