package limiter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/metrics"
)

// TestExplainCountsNothing explains a request with a cost that is none: only one that is made is counted.
func TestExplainCountsNothing(t *testing.T) {
	l := newTestLimiter(t, nil, &config.Zone{
		Name: "z", Cost: "{http.request.header.X-Cost}", Rules: []*config.Rule{{Limit: 9, Window: config.Window{Duration: time.Hour}}},
	})
	c := new(metrics.Counters)
	l.zones[0].metrics.Counters = c
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://example.com/", http.NoBody)
	r.Header.Set("X-Cost", "none")
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
	if _, _, _, err := l.Explain(context.Background(), r); err != nil || c.Sum(metrics.BadCost) != 0 {
		t.Errorf("error %v, %d bad costs after an explanation, want none", err, c.Sum(metrics.BadCost))
	}
	q := l.newRequest(w, r)
	defer q.release()
	if err := q.collect(); err != nil || c.Sum(metrics.BadCost) != 1 {
		t.Errorf("error %v, %d bad costs, want one", err, c.Sum(metrics.BadCost))
	}
}
