package limiter

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/metrics"
)

// TestBadValuesAreCountedOnce has a request with a bad cost, limit and priority wait for a rule, while rules change, and
// then for a place: each is counted once.
func TestBadValuesAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", Cost: "{http.request.header.X-Cost}", MaxWait: caddy.Duration(time.Minute),
			InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1, Priority: "{http.request.header.X-Priority}", Classes: []string{"paid", "free"}},
			Rules:            []*config.Rule{{LimitFrom: "{http.request.header.X-Limit}", Limit: 1, Window: config.Window{Duration: 10 * time.Second}}},
		})
		ask(context.Background(), l, "a", takes(0))
		c := new(metrics.Counters)
		l.zones[0].metrics.Counters = c
		var all sync.WaitGroup
		all.Go(func() {
			if status := ask(context.Background(), l, "a", takes(0)); status != http.StatusOK {
				t.Errorf("status %d", status)
			}
		})
		for range 3 {
			time.Sleep(time.Second)
			again := *l.zones[0].active.Load()
			l.zones[0].active.Store(&again)
			tellWaiting(l.zones)
		}
		all.Wait()
		for what, o := range map[string]metrics.Outcome{"cost": metrics.BadCost, "limit": metrics.BadLimit, "priority": metrics.BadPriority} {
			if n := c.Sum(o); n != 1 {
				t.Errorf("%d times a bad %s, want 1", n, what)
			}
		}
	})
}

// TestWaitOfAPlaceIsLoggedOnce has a request wait for a place, and its client leave while a leaky_bucket delays it after
// that.
func TestWaitOfAPlaceIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}, MaxWait: caddy.Duration(time.Minute),
			Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: 10 * time.Second}, AlgorithmRaw: []byte(`{"name": "leaky_bucket"}`)}},
		})
		l.o.AccessLogs = true
		ctx, leave := context.WithCancel(context.Background())
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", http.NoBody)
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, &caddyhttp.Server{Logs: new(caddyhttp.ServerLogConfig)})
		var all sync.WaitGroup
		all.Go(func() { ask(context.Background(), l, "", takes(5*time.Second)) })
		synctest.Wait()
		time.AfterFunc(7*time.Second, leave)
		if status := statusOf(l.ServeHTTP(w, r, takes(0))); status != statusGone {
			t.Errorf("status %d: want 499", status)
		}
		if line := visitOf(r.Context()).logged; line.wait != 5*time.Second || line.outcome != metrics.Left {
			t.Errorf("%v after %v: want %v after 5 s", line.outcome, line.wait, metrics.Left)
		}
		all.Wait()
	})
}
