package limiter

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
)

// TestSettleCutWhileHandlersFail settles requests while their next handlers fail and leave their end to the error
// routes: the race detector finds what both write.
func TestSettleCutWhileHandlersFail(t *testing.T) {
	l := newTestLimiter(t, nil, &config.Zone{
		Name: "z", Settle: "{http.response.body.usage}", Rules: []*config.Rule{{Limit: 1_000_000, Window: config.Window{Duration: time.Hour}}},
	})
	l.o.ErrorRoutes = true
	fails := handlerFunc(func(http.ResponseWriter, *http.Request) error { return errors.New("it failed") })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				ctx, cancel := context.WithCancel(context.Background())
				w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", http.NoBody)
				_ = l.ServeHTTP(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{}), fails)
				cancel()
			}
		})
	}
	for range 1000 {
		l.SettleCut()
	}
	all.Wait()
}
