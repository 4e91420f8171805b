package redis

import (
	"context"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

func calendarOf(t *testing.T, name string, period algorithms.Period, limit int64) *stores.Counter {
	t.Helper()
	sp := algorithms.Spec{Limit: limit, Window: period.Longest(), Period: period, Cost: 1}
	return kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: &algorithms.Calendar{TimeZone: "Europe/Berlin"}, Spec: sp})
}

// TestCalendarByAnotherClock decides with an instance whose clock is years off. Redis refuses the
// periods that it packs by that clock once, and changes nothing; those of Redis' time follow in the
// same decision.
func TestCalendarByAnotherClock(t *testing.T) {
	for _, ahead := range []time.Duration{-5 * 365 * 24 * time.Hour, 48 * time.Hour, 5 * 365 * 24 * time.Hour} {
		srv := redistest.Start(t)
		local := func() int64 { return time.Now().Add(ahead).UnixMicro() }
		s := New(Options{Name: "redis", Clock: local, ConnOptions: ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: time.Minute, DialTimeout: time.Minute}}, silent{})
		day, plain := calendarOf(t, "day", algorithms.Day, 3), kit.TenPerHour(t, "plain", false)
		for left := int64(2); left >= 0; left-- {
			check := storekit.CheckOf(1, day, plain)
			s.Decide(context.Background(), check)
			if !check.Admitted || check.Mode != stores.ModeShared || check.Zones[0].Results[0].Remaining != left || check.Zones[1].Results[0].Remaining != 7+left {
				t.Fatalf("%v ahead: %v in mode %v: %+v, want %d left", ahead, check.Admitted, check.Mode, check.Zones, left)
			}
		}
		check := storekit.CheckOf(1, day, plain)
		s.Decide(context.Background(), check)
		_, next := day.Rules[0].(algorithms.Dated).Present(time.Now().UnixMicro())
		if retry := check.Zones[0].Results[0].Retry; check.Admitted || max(next-time.Now().UnixMicro()-retry, retry-next+time.Now().UnixMicro()) > 60_000_000 {
			t.Errorf("%v ahead: admitted %v, retry after %v, want the end of the day in %v", ahead, check.Admitted, time.Duration(retry)*time.Microsecond, time.Until(time.UnixMicro(next)))
		}
		if err := s.Destruct(); err != nil {
			t.Error(err)
		}
	}
}

// TestCalendarTurns decides at the instants around the end of a month, in Redis and locally: the
// next one begins in both at the same microsecond, and a clock that is set back takes what was
// used along.
func TestCalendarTurns(t *testing.T) {
	w := newBothStores(t)
	c := calendarOf(t, "month", algorithms.Month, 5)
	_, next := c.Rules[0].(algorithms.Dated).Present(virtualStart)
	for _, step := range []struct{ after, cost, left int64 }{
		{-2_000_000, 2, 3},
		{-1, 3, 0},
		{-1, 1, 0},
		{0, 4, 1},
		{1_000_000, 1, 0},
		{-3_600_000_000, 1, 0}, // set back: denied until this month ends, again
		{0, 5, 0},
	} {
		at := next + step.after
		check := w.decide(float64(at-virtualStart)/1e6, step.cost, c)
		if left := check.Zones[0].Results[0].Remaining; left != step.left {
			t.Errorf("at %v of the end, cost %d: %d left, want %d", time.Duration(step.after)*time.Microsecond, step.cost, left, step.left)
		}
	}
}
