package limiter

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
)

// TestMaxWaitOfARule checks that a request waits for a rule with a max_wait, and not for one without.
func TestMaxWaitOfARule(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		name   string
		short  time.Duration // max_wait of the rule that denies first
		long   time.Duration // of the other, which admits one request a day
		status int
	}{
		{"waits", time.Minute, 0, http.StatusOK},
		{"does not", 0, time.Minute, http.StatusTooManyRequests},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTestLimiter(t, nil, &config.Zone{Name: "z", Rules: []*config.Rule{
				{Limit: 1, Window: config.Window{Duration: 50 * time.Millisecond}, MaxWait: caddy.Duration(c.short)},
				{Limit: 10, Window: config.Window{Duration: day}, MaxWait: caddy.Duration(c.long)},
			}})
			if status := ask(context.Background(), l, "a", takes(0)); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			if status := ask(context.Background(), l, "a", takes(0)); status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
		})
	}
}
