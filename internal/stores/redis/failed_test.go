package redis

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestFailedCallIsNotTheDecision stalls Redis: this process decides, and how long it
// waited for Redis before is reported apart, also if zones are in several stores.
func TestFailedCallIsNotTheDecision(t *testing.T) {
	srv := redistest.Start(t)
	const timeout = 300 * time.Millisecond
	s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
		Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: timeout, DialTimeout: 10 * time.Second,
	}}, silent{})
	s.Start(1)
	t.Cleanup(func() { _ = s.Destruct() })
	c := kit.TenPerHour(t, "z", false)
	check := storekit.CheckOfKey(c, 1)
	waitFor(t, "Redis", func() bool { s.Decide(context.Background(), check); return check.Mode == stores.ModeShared })
	if check.Waited != 0 {
		t.Errorf("a decision of Redis has failed for %d us", check.Waited)
	}
	srv.Stall()
	defer srv.Resume()
	begun := time.Now()
	s.Decide(context.Background(), check)
	took := time.Since(begun)
	if check.Mode != stores.ModeFallback || check.Waited < timeout.Microseconds()*9/10 || check.Waited > took.Microseconds() {
		t.Errorf("mode %v, failed for %d us of %v", check.Mode, check.Waited, took)
	}
	both := stores.Check{Zones: slices.Concat(storekit.CheckOfKey(c, 2).Zones, storekit.CheckOfKey(kit.TenPerHour(t, "local", false), 3).Zones)}
	stores.Across(context.Background(), &both, []stores.Store{s, &memory.Store{Clock: s.o.Clock}})
	if m := both.Zones[0].Mode; m == stores.ModeShared || both.Zones[1].Mode != stores.ModeLocal {
		t.Errorf("modes %v and %v", m, both.Zones[1].Mode)
	}
	for i := range both.Zones {
		if got := both.Zones[i].Took; got <= 0 || got > timeout/2 {
			t.Errorf("zone %d: this process took %v, want that without the wait for Redis", i, got)
		}
	}
	waitFor(t, "the breaker to open", func() bool {
		s.Decide(context.Background(), check)
		return s.isDown()
	})
	if s.Decide(context.Background(), check); check.Mode != stores.ModeFallback || check.Waited != 0 {
		t.Errorf("with an open breaker: mode %v, failed for %d us", check.Mode, check.Waited)
	}
}
