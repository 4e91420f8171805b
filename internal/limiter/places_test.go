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
)

// TestOneMaxWait has a request wait for a rule and then for a place: max_wait is for both together.
func TestOneMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, nil, &config.Zone{
			Name: "z", InFlightAdaptive: &config.Adaptive{Min: 1, Max: 1}, MaxWait: caddy.Duration(500 * time.Millisecond),
			Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: 400 * time.Millisecond}}},
		})
		var all sync.WaitGroup
		defer all.Wait()
		all.Go(func() { ask(context.Background(), l, "a", takes(time.Minute)) })
		synctest.Wait()
		begun := time.Now()
		status := ask(context.Background(), l, "a", takes(0))
		if took := time.Since(begun); status != http.StatusServiceUnavailable || took != 500*time.Millisecond {
			t.Errorf("status %d after %v: want 503 after max_wait", status, took)
		}
	})
}
