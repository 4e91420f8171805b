package limiter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// TestExplainWithoutAPlace explains a request while all places of in_flight adaptive are taken: with max_wait it would
// wait if the queue has room, and otherwise be denied, unless a rule denies it first.
func TestExplainWithoutAPlace(t *testing.T) {
	for name, c := range map[string]struct {
		maxWait, window         time.Duration
		waiting                 int
		decision, cause, status string
		waits                   bool
	}{
		"max_wait":    {time.Minute, time.Millisecond, 0, "allowed", "", "", true},
		"no max_wait": {0, time.Millisecond, 0, "denied", "overload", "HTTP 503", false},
		"a rule":      {0, time.Hour, 0, "denied", "rule", "HTTP 429", false},
		"full queue":  {time.Minute, time.Millisecond, 1, "denied", "overload", "HTTP 503", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLimiter(t, nil, &config.Zone{
					Name: "z", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}, MaxWait: caddy.Duration(c.maxWait), MaxWaiting: int64(c.waiting),
					Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: c.window}}},
				})
				var all sync.WaitGroup
				defer all.Wait()
				all.Go(func() { ask(context.Background(), l, "a", takes(time.Minute)) })
				time.Sleep(time.Second)
				for range c.waiting {
					all.Go(func() { ask(context.Background(), l, "a", takes(0)) })
					synctest.Wait()
				}
				w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), http.MethodGet, "http://example.com/", http.NoBody)
				r.Header.Set("X-Key", "a")
				r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{})
				applies, _, denies, err := l.Explain(context.Background(), r)
				k, denied := applies[0], denies != nil
				if k.Decision != c.decision || k.Cause != c.cause || k.Place.Waits != c.waits || denied != (c.decision == "denied") {
					t.Errorf("%s, cause %q, %+v, denied %v", k.Decision, k.Cause, *k.Place, denied)
				}
				if denied && !strings.Contains(err.Error(), c.status) {
					t.Errorf("error %v, want one of %s", err, c.status)
				}
				if denied && k.RetryIn == nil {
					t.Error("no retry_after")
				}
			})
		})
	}
}
