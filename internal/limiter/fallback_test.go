package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// aloneStore decides as one that is unavailable, with on_failure local.
type aloneStore struct{ memory.Store }

func (s *aloneStore) Decide(ctx context.Context, c *stores.Check) {
	s.Store.Decide(ctx, c)
	c.Mode = stores.ModeFallback
}

// TestFallbackIsCountedOnce has a request ask an unavailable store again and again while it waits for a permit.
func TestFallbackIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, &aloneStore{memory.Store{Clock: clock.Now}}, &config.Zone{Name: "z", InFlight: 1, MaxWait: caddy.Duration(time.Minute)})
		l.counted = inStore
		c := new(metrics.Counters)
		l.zones[0].metrics.Counters = c
		askMany(l, 2, takes(10*time.Second))
		if n := c.Sum(metrics.Fallback); n != 2 {
			t.Errorf("%d decisions without the store: want 2, one for each request", n)
		}
	})
}
