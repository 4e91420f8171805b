package limiter

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

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
