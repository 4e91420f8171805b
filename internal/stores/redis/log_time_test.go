//go:build measure

package redis

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestLogTimes measures how long calls take Redis for a sliding_log of a million timestamps
// that is filled, decided, and charged a debt, as TestPermitTimes does.
func TestLogTimes(t *testing.T) {
	const n = 1_000_000
	srv := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
	var now atomic.Int64
	now.Store(storestest.Hour)
	s := newTestShared(t, srv, now.Load)
	m := &timing{T: t, client: srv.Client(), pid: srv.Pid()}
	c := storestest.NewTestCounter(t, "times", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: n, Window: storestest.Hour, Cost: 1}})
	decide := func(cost int64) {
		check := storestest.CheckOf(cost, c)
		if s.Decide(context.Background(), check); !check.Admitted {
			t.Errorf("a cost of %d is denied", cost)
		}
	}
	for range n / 2 / 500 {
		decide(500)
	}
	m.log("filled with 500,000 by 500")
	for range 1000 {
		decide(1)
	}
	m.log("decided one by one")
	s.markDown()
	for range 400 {
		decide(1000)
	}
	s.markUp()
	for owes(c) {
		s.payDebts(context.Background())
	}
	m.log("charged a debt of 400,000")
}
