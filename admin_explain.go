package diana

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// explainRequest describes a request.
type explainRequest struct {
	Method   string                 `json:"method"`    // default GET
	URL      string                 `json:"url"`       // with scheme and host
	ClientIP string                 `json:"client_ip"` // as Caddy would find it
	RemoteIP string                 `json:"remote_ip"` // default: the client's
	Headers  map[string]stringOrAll `json:"headers"`
}

// stringOrAll is a header's value, or a list of them.
type stringOrAll []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *stringOrAll) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*s = make(stringOrAll, 1)
		return json.Unmarshal(b, &(*s)[0])
	}
	return json.Unmarshal(b, (*[]string)(s))
}

// explanation says what would become of a request.
type explanation struct {
	Decision string             `json:"decision"` // allowed, denied, or none: no zone applies
	Zone     string             `json:"zone,omitempty"`
	Rule     string             `json:"rule,omitempty"`
	RetryIn  *float64           `json:"retry_after,omitempty"`
	Handlers []explainedHandler `json:"handlers"` // that the request would come to, in order
}

type explainedHandler struct {
	Server  string        `json:"server"`
	Zones   []statusOfKey `json:"zones"`
	Without []string      `json:"not_matching,omitempty"` // zones that do not apply
	Error   string        `json:"error,omitempty"`
}

const maxExplain = 64 << 10

// explain says which zones a described request would come to, what it would be
// counted by, and which rule would deny it. It is charged to none.
func (*adminAPI) explain(w http.ResponseWriter, r *http.Request, app *App) error {
	if r.Method != http.MethodPost {
		return wrongMethod(w, "POST")
	}
	// A page elsewhere can send a form without asking first, but no JSON.
	if kind, _, err := mime.ParseMediaType(r.Header.Get(headerContentType)); err != nil || kind != "application/json" {
		return adminError(http.StatusUnsupportedMediaType, errors.New("want Content-Type: application/json"))
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxExplain))
	dec.DisallowUnknownFields()
	var d explainRequest
	if err := dec.Decode(&d); err != nil {
		return adminError(http.StatusBadRequest, fmt.Errorf("%w: %w", err, errNoRequest))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return adminError(http.StatusBadRequest, errNoRequest)
	}
	servers, err := app.servers()
	if err != nil {
		return err
	}
	e := explainer{ctx: r.Context(), out: explanation{Decision: "none", Handlers: []explainedHandler{}}}
	if err := e.describe(&d); err != nil {
		return adminError(http.StatusBadRequest, err)
	}
	for _, name := range e.chosen(servers) {
		e.server(name, servers[name])
	}
	return answerJSON(w, e.out)
}

// servers are those of the configuration that runs.
func (a *App) servers() (map[string]*caddyhttp.Server, error) {
	v, err := a.ctx.AppIfConfigured("http")
	if err != nil {
		return nil, err
	}
	app, ok := v.(*caddyhttp.App)
	if !ok {
		return nil, fmt.Errorf("app http is a %T", v)
	}
	return app.Servers, nil
}

// explainer walks the routes as a request would, without running anything.
type explainer struct {
	ctx    context.Context
	d      *explainRequest
	url    *url.URL
	ip     string
	remote string
	name   string
	srv    *caddyhttp.Server
	r      *http.Request
	depth  int
	out    explanation
}

func (e *explainer) describe(d *explainRequest) (err error) {
	e.d = d
	if e.url, err = url.Parse(d.URL); err != nil || e.url.Host == "" {
		return fmt.Errorf("url %q: want such as https://example.com/path", d.URL[:min(len(d.URL), 200)])
	}
	for _, ip := range []struct {
		name, value string
		to          *string
	}{{"client_ip", d.ClientIP, &e.ip}, {"remote_ip", orDefault(d.RemoteIP, d.ClientIP), &e.remote}} {
		addr, err := netip.ParseAddr(ip.value)
		if err != nil {
			return fmt.Errorf("%s %q: want an IP address", ip.name, ip.value[:min(len(ip.value), 64)])
		}
		*ip.to = addr.String()
	}
	return nil
}

// chosen are the servers that listen on the URL's port, or all if none does.
func (e *explainer) chosen(servers map[string]*caddyhttp.Server) (names []string) {
	port := e.url.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[e.url.Scheme]
	}
	var all []string
	for name, srv := range servers {
		all = append(all, name)
		if slices.ContainsFunc(srv.Listen, func(l string) bool { return strings.HasSuffix(l, ":"+port) }) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		names = all
	}
	slices.Sort(names)
	return names
}

func (e *explainer) server(name string, srv *caddyhttp.Server) {
	e.name, e.srv = name, srv
	r, err := http.NewRequestWithContext(e.ctx, orDefault(e.d.Method, http.MethodGet), e.url.String(), http.NoBody)
	if err != nil {
		e.out.Handlers = append(e.out.Handlers, explainedHandler{Server: name, Error: short(err)})
		return
	}
	r.RemoteAddr, r.RequestURI = net.JoinHostPort(e.remote, "0"), e.url.RequestURI()
	if e.url.Scheme == "https" {
		r.TLS = &tls.ConnectionState{ServerName: e.url.Hostname()}
	}
	for k, v := range e.d.Headers {
		r.Header[http.CanonicalHeaderKey(k)] = v
	}
	e.r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), nowhereWriter{}, srv)
	caddyhttp.SetVar(e.r.Context(), caddyhttp.ClientIPVarKey, e.ip)
	e.routes(srv.Routes)
}

const maxRouteDepth = 64

// routes goes through the routes whose matchers apply, and reports whether the
// request would come no further.
func (e *explainer) routes(routes caddyhttp.RouteList) (ends bool) {
	if e.depth++; e.depth > maxRouteDepth {
		return true
	}
	defer func() { e.depth-- }()
	taken := make(map[string]bool)
	for i := range routes {
		if g := routes[i].Group; g != "" && taken[g] {
			continue
		}
		if match, err := routes[i].MatcherSets.AnyMatchWithError(e.r); err != nil || !match {
			continue
		}
		taken[routes[i].Group] = true
		if e.route(&routes[i]) || routes[i].Terminal {
			return true
		}
	}
	return false
}

func (e *explainer) route(route *caddyhttp.Route) (ends bool) {
	for _, h := range route.Handlers {
		switch h := h.(type) {
		case *Handler:
			ends = e.handler(h)
		case *caddyhttp.Subroute:
			ends = e.routes(h.Routes)
		case *caddyhttp.Invoke:
			if named := e.srv.NamedRoutes[h.Name]; named != nil {
				ends = e.routes(caddyhttp.RouteList{*named})
			}
		}
		if ends {
			return true
		}
	}
	return false
}

// handler says what a handler would decide, and reports whether it denies.
func (e *explainer) handler(h *Handler) (denies bool) {
	q := newRequest(h, e.r)
	defer q.release()
	out := explainedHandler{Server: e.name, Zones: []statusOfKey{}}
	err := q.collect()
	if err != nil {
		out.Error = short(err)
	}
	applies := make(map[string]bool)
	for i := range q.uses {
		u := &q.uses[i]
		applies[u.z.Name] = true
		s := e.use(q, u)
		out.Zones = append(out.Zones, s)
		e.sum(&s)
	}
	for _, z := range h.zones {
		if !applies[z.Name] {
			out.Without = append(out.Without, z.Name)
		}
	}
	e.out.Handlers = append(e.out.Handlers, out)
	return e.out.Decision == denied.String()
}

// sum adds a zone to the whole: the first that denies is named, and the longest
// retry of all that do.
func (e *explainer) sum(s *statusOfKey) {
	if e.out.Decision == "none" {
		e.out.Decision = allowed.String()
	}
	if s.Decision != denied.String() {
		return
	}
	if e.out.Zone == "" {
		e.out.Decision, e.out.Zone, e.out.Rule, e.out.RetryIn = s.Decision, s.Zone, s.Rule, s.RetryIn
	} else if s.RetryIn != nil && e.out.RetryIn != nil && *s.RetryIn > *e.out.RetryIn {
		e.out.RetryIn = s.RetryIn
	}
}

// use says what a zone that applies would decide.
func (e *explainer) use(q *request, u *use) statusOfKey {
	s := statusOfKey{Zone: u.z.Name, Shadow: u.shadow, Parts: u.z.keyTexts(e.r), Decision: skipped.String(), Rules: []statusOfKeyRule{}}
	switch {
	case u.outcome == skipped:
	case u.label != "":
		s.deny(u.shadow, u.label)
	case u.item < 0:
		s.Decision = allowed.String()
	default:
		it := q.ask.Zones[u.item]
		it.Results = nil // the request's own room is not for what is only looked at
		s.Key, s.Cost = it.Key.String(), it.Cost
		s.judge(e.ctx, u.z, u.set, &it)
	}
	return s
}

// keyTexts are the parts of a request's key.
func (z *zone) keyTexts(r *http.Request) []string {
	parts := make([]string, len(z.key.parts))
	for i, t := range z.key.parts {
		parts[i] = string(t.append(nil, r))
	}
	return parts
}

// nowhereWriter is where the answer to a request would go that is not made.
type nowhereWriter struct{}

func (nowhereWriter) Header() http.Header         { return make(http.Header) }
func (nowhereWriter) Write(b []byte) (int, error) { return len(b), nil }
func (nowhereWriter) WriteHeader(int)             {}
