package benchtest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// KeyHeader is the header that identifies a request's client.
const KeyHeader = "X-Key"

// Exchange is a reusable request and response. Everything that a server creates for
// each request is reset, at almost no cost.
type Exchange struct {
	r     *http.Request
	w     response
	key   []string // the values of KeyHeader
	repl  *caddy.Replacer
	fresh caddy.Replacer // initial state of repl
	extra *caddyhttp.ExtraLogFields
}

// NewExchange prepares a request.
func NewExchange(tb testing.TB) *Exchange {
	e := &Exchange{key: []string{""}, repl: caddy.NewReplacer(), w: response{header: make(http.Header)}}
	r := httptest.NewRequest(http.MethodGet, "http://example.com/orders/17?page=2", nil)
	r.RemoteAddr = "203.0.113.7:41234"
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0")
	r.Header.Set("Accept", "*/*")
	r.Header[KeyHeader] = e.key

	// net/http's server and connection contexts are parents of Caddy's.
	ctx := context.WithValue(context.Background(), http.ServerContextKey, new(http.Server))
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}))
	ctx, cancel := context.WithCancel(ctx)
	tb.Cleanup(cancel)
	e.r = caddyhttp.PrepareRequest(r.WithContext(ctx), e.repl, &e.w, new(caddyhttp.Server))
	e.fresh = *e.repl
	e.extra, _ = e.r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	return e
}

// Request returns the request, for changes before it is sent.
func (e *Exchange) Request() *http.Request { return e.r }

// Do sends the request of one client to a handler and returns its error.
func (e *Exchange) Do(h caddyhttp.MiddlewareHandler, key string) error {
	e.key[0] = key
	*e.repl = e.fresh
	*e.extra = caddyhttp.ExtraLogFields{}
	clear(e.w.header)
	e.w.status = 0
	return h.ServeHTTP(&e.w, e.r, answer)
}

// Header returns the header of the last response.
func (e *Exchange) Header() http.Header { return e.w.header }

// answer is the handler after the measured one.
var answer = caddyhttp.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) error {
	w.WriteHeader(http.StatusOK)
	return nil
})

// response is a ResponseWriter that keeps only header and status.
type response struct {
	header http.Header
	status int
}

func (w *response) Header() http.Header         { return w.header }
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(b []byte) (int, error) { return len(b), nil }
