package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/lib/loglimit"
	"github.com/dianalimiter/diana/internal/limiter"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/ops/cli"
	"github.com/dianalimiter/diana/internal/ops/routes"
)

const maxExplain = 64 << 10

// explain returns which zones would apply to a described request, the keys it would
// count by, and the rule that would deny it. Nothing is charged.
func (api *API) explain(w http.ResponseWriter, r *http.Request, in instance) error {
	if r.Method != http.MethodPost {
		return wrongMethod(w, r, "POST")
	}
	if err := checkJSON(r); err != nil {
		return err
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxExplain))
	dec.DisallowUnknownFields()
	var d cli.Request
	if err := dec.Decode(&d); err != nil {
		return apiError(http.StatusBadRequest, fmt.Errorf("%w: %w", err, errNoRequest))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return apiError(http.StatusBadRequest, errNoRequest)
	}
	servers, err := in.Servers()
	if err != nil {
		return err
	}
	e := explainer{in: in, ctx: r.Context(), out: cli.Explanation{Decision: "none", FromFile: api.File, Handlers: []cli.Handler{}}}
	if err := e.describe(&d); err != nil {
		return apiError(http.StatusBadRequest, err)
	}
	for _, name := range routes.Servers(servers, cmp.Or(e.url.Port(), routes.Ports[e.url.Scheme])) {
		e.server(name, servers[name])
	}
	return answerJSON(w, e.out)
}

// explainer leads a described request through the routes of servers.
type explainer struct {
	in     instance
	ctx    context.Context
	d      *cli.Request
	url    *url.URL
	proto  string // empty: the default
	ip     string
	remote string
	out    cli.Explanation
}

// protos are the versions of HTTP, as a request has them.
var protos = map[string]string{"": "", "http/1.0": "HTTP/1.0", "http/1.1": "HTTP/1.1", "http/2": "HTTP/2.0", "http/3": "HTTP/3.0"}

func (e *explainer) describe(d *cli.Request) (err error) {
	e.d = d
	full := d.URL
	if strings.HasPrefix(full, "/") {
		full = "localhost" + full
	}
	if !strings.Contains(full, "://") {
		full = "http://" + full
	}
	if e.url, err = url.Parse(full); err != nil || e.url.Host == "" {
		return fmt.Errorf("url %q: want such as https://example.com/path", d.URL[:min(len(d.URL), 200)])
	}
	if _, err := http.NewRequest(d.Method, full, http.NoBody); err != nil { //nolint:noctx // it is not sent
		return fmt.Errorf("method %q: want such as POST", d.Method[:min(len(d.Method), 64)])
	}
	var known bool
	if e.proto, known = protos[strings.ToLower(d.Proto)]; !known {
		return fmt.Errorf("proto %q: want http/1.0, http/1.1, http/2 or http/3", d.Proto[:min(len(d.Proto), 64)])
	}
	for _, ip := range []struct {
		name, value string
		to          *string
	}{{"client_ip", d.ClientIP, &e.ip}, {"remote_ip", cmp.Or(d.RemoteIP, d.ClientIP), &e.remote}} {
		addr, err := netip.ParseAddr(ip.value)
		if err != nil {
			return fmt.Errorf("%s %q: want an IP address", ip.name, ip.value[:min(len(ip.value), 64)])
		}
		*ip.to = addr.String()
	}
	return nil
}

func (e *explainer) server(name string, srv *caddyhttp.Server) {
	fail := func(err error) {
		e.out.Handlers = append(e.out.Handlers, cli.Handler{Server: name, Zones: []limiter.Key{}, Error: loglimit.Short(err)})
	}
	r := e.request()
	var way *routes.Way
	way, err := routes.New(srv, func(h caddyhttp.MiddlewareHandler) caddyhttp.MiddlewareHandler {
		if l := e.in.Limiter(h); l != nil {
			return routes.Step(func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
				return e.explain(name, l, way, w, r, next)
			})
		}
		return nil
	})
	if err != nil {
		fail(err)
		return
	}
	before := len(e.out.Handlers)
	if _ = way.Lead(r, e.ip); way.Failed == nil { // an error of a handler is its response
		return
	}
	if e.out.Zone == "" {
		e.out.Decision = cli.Undecided
	}
	if n := len(e.out.Handlers); n == before || e.out.Handlers[n-1].Error == "" { // not one of a zone
		fail(way.Failed)
	}
}

// request returns the described request. It is a new one for each server, whose handlers change it.
func (e *explainer) request() *http.Request {
	d := routes.Request{
		Method: cmp.Or(e.d.Method, http.MethodGet), URI: e.url.RequestURI(), Host: e.url.Host, Proto: e.proto, Header: make(http.Header),
		Body: io.NopCloser(strings.NewReader(e.d.Body)), Length: int64(len(e.d.Body)), RemoteIP: e.remote,
	}
	https := e.url.Scheme == "https"
	if d.Proto == "" {
		d.Proto = map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[https]
	}
	if https || d.Proto == "HTTP/3.0" {
		d.TLS = routes.TLS(e.url.Hostname(), d.Proto)
	}
	if d.Length > 0 {
		d.Header.Set("Content-Length", strconv.FormatInt(d.Length, 10))
	}
	for k, v := range e.d.Headers {
		if k = http.CanonicalHeaderKey(k); k == "Host" && len(v) > 0 {
			d.Host = v[0]
			continue
		}
		d.Header[k] = v
	}
	return d.HTTP(e.ctx)
}

// explain adds what a handler on the way through a server would decide.
func (e *explainer) explain(server string, l *limiter.Limiter, way *routes.Way, w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	out := cli.Handler{Server: server, Response: way.Response, Zones: []limiter.Key{}, NotRun: slices.Clone(way.NotRun)}
	applies, others, denies, err := l.Explain(e.ctx, r)
	if denies != nil {
		e.sum(denies, way.Response)
	}
	for i := range applies {
		if denies == nil || denies.Cause != metrics.CauseStore.String() { // which tells when to retry
			e.sum(&applies[i], way.Response)
		}
	}
	out.Zones = append(out.Zones, applies...)
	if out.Without = others; err != nil && denies == nil {
		way.Fail(err)
		out.Error = loglimit.Short(err)
	}
	e.out.Handlers = append(e.out.Handlers, out)
	if err != nil || denies != nil {
		return err
	}
	return next.ServeHTTP(w, r)
}

// sum adds the decision of a zone to the explanation, which has the first one that
// denies and the longest retry of all that do. One that only the response of a handler leads to stands
// behind the others.
func (e *explainer) sum(k *limiter.Key, response string) {
	if e.out.Decision == "none" {
		e.out.Decision = metrics.Allowed.String()
	}
	if k.Decision != metrics.Denied.String() {
		return
	}
	if e.out.Zone == "" || e.out.Response != "" && response == "" {
		e.out.Decision, e.out.Zone, e.out.Rule, e.out.Cause, e.out.RetryIn, e.out.Response = k.Decision, k.Zone, k.Rule, k.Cause, k.RetryIn, response
	} else if e.out.Response == response && e.out.RetryIn != nil && (k.RetryIn == nil || *k.RetryIn > *e.out.RetryIn) {
		e.out.RetryIn = k.RetryIn
	}
}

var errNoRequest = errors.New(`want a request such as {"method": "GET", "url": "https://example.com/path", "client_ip": "192.0.2.1"}`)
