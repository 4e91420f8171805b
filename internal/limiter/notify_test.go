package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// charging is a store that denies the first check, and makes with it the charge of a request that
// has ended, as Redis does.
type charging struct {
	memory.Store
	asks int
}

func (s *charging) Decide(ctx context.Context, check *stores.Check) {
	s.asks++
	z := &check.Zones[0]
	if s.asks == 1 {
		z.Cost = 7 // of 10, and the rest of the check is denied
		s.Store.Decide(ctx, check)
		z.Cost, z.Charged, z.Admits, check.Admitted = 1, false, false, false
		return
	}
	s.Store.Decide(ctx, check)
}

// TestDeniedChecksTellWhatTheyReached has a check that is denied, and then waits, reach a percentage.
func TestDeniedChecksTellWhatTheyReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLimiter(t, &charging{Store: memory.Store{Clock: clock.Now}}, &config.Zone{
			Name: "z", MaxWait: caddy.Duration(time.Second),
			Rules: []*config.Rule{{Limit: 10, Window: config.Window{Duration: time.Hour}, Notify: []int{50, 80}}},
		})
		core, lines := observer.New(zapcore.InfoLevel)
		l.o.Logger = zap.New(core)
		if status := ask(context.Background(), l, "a", takes(0)); status != 200 {
			t.Errorf("status %d, want 200", status)
		}
		var percents []int64
		for _, e := range lines.FilterMessage("rate limit reached").All() {
			percents = append(percents, e.ContextMap()["percent"].(int64))
		}
		if len(percents) != 2 || percents[0] != 50 || percents[1] != 80 {
			t.Errorf("reached: %v %%, want 50 and 80, once each", percents)
		}
		checkEmpty(t, l)
	})
}
