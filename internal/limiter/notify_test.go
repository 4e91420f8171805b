package limiter

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
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

// TestLinesAreBounded denies a request with a long host and a long key.
func TestLinesAreBounded(t *testing.T) {
	l := newTestLimiter(t, nil, &config.Zone{Name: "z", Rules: []*config.Rule{{Limit: 1, Window: config.Window{Duration: time.Hour}}}})
	core, lines := observer.New(zapcore.InfoLevel)
	l.o.Logger, l.o.LogKey = zap.New(core), true
	long := strings.Repeat("\x80a", 1<<20)
	for range 2 {
		_ = ask(context.Background(), l, long, takes(0))
	}
	all := lines.FilterMessage("rate limit exceeded").All()
	if len(all) != 1 {
		t.Fatalf("%d lines, want 1", len(all))
	}
	if key := all[0].ContextMap()["key"].(string); len(key) == 0 || len(key) > longestValue || !utf8.ValidString(key) {
		t.Errorf("a key of %d bytes, want at most %d", len(key), longestValue)
	}
}
