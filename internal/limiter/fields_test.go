package limiter

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
)

// TestHeadersOfASubroute checks that a handler has in its headers those of all handlers inside it:
// of one that failed, and of one in the error routes of that subroute.
func TestHeadersOfASubroute(t *testing.T) {
	of := func(name string) *Limiter {
		l := newTestLimiter(t, nil, &config.Zone{Name: name, Rules: []*config.Rule{{Limit: 5, Window: config.Window{Duration: time.Hour}}}})
		l.follows = true
		return l
	}
	outer, failing, last := of("outer"), of("failing"), of("last")
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", http.NoBody)
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	err := outer.ServeHTTP(w, r, handlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		err := failing.ServeHTTP(w, r, handlerFunc(func(http.ResponseWriter, *http.Request) error { return io.ErrUnexpectedEOF }))
		return last.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), caddyhttp.ErrorCtxKey, err)), takes(0))
	}))
	if got := w.Header()["Ratelimit-Policy"]; err != nil || !slices.Equal(got, []string{`"outer";q=5;w=3600, "failing";q=5;w=3600, "last";q=5;w=3600`}) {
		t.Errorf("%v, RateLimit-Policy %q", err, got)
	}
}
