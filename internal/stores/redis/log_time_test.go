//go:build measure

package redis

import (
	"context"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestLogTimes measures how long calls take Redis for a sliding_log of a million timestamps
// that is filled, decided, and charged debts, as TestPermitTimes does: while its value grows, which
// Redis copies at times, and when it has its full length.
func TestLogTimes(t *testing.T) {
	const n, window = 1_000_000, 5 * time.Second
	srv := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
	start := time.Now()
	s := New(Options{Name: "redis", Clock: func() int64 { return storestest.Hour + time.Since(start).Microseconds() }, ConnOptions: ConnOptions{
		Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: time.Minute, DialTimeout: time.Minute,
	}}, silent{})
	s.Start(0)
	t.Cleanup(func() { _ = s.Destruct() })
	m := &timing{T: t, client: srv.Client(), pid: srv.Pid()}
	c := storestest.NewTestCounter(t, "times", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: n, Window: window.Microseconds(), Cost: 1}})
	decide := func(times int, cost int64) {
		for range times {
			check := storestest.CheckOf(cost, c)
			if s.Decide(context.Background(), check); !check.Admitted {
				t.Errorf("a cost of %d is denied", cost)
			}
		}
	}
	debt := func() {
		s.markDown()
		decide(400, 1000)
		s.markUp()
		for owes(c) {
			s.payDebts(context.Background())
		}
	}
	decide(1000, 500)
	m.log("filled with 500,000 by 500")
	decide(1000, 1)
	m.log("decided one by one")
	debt()
	m.log("charged a debt of 400,000")
	for range 2 { // the second time from its beginning
		time.Sleep(window)
		decide(1000, 500)
	}
	m.log("filled to its length")
	time.Sleep(window)
	debt()
	m.log("charged a debt of 400,000 again")
}
