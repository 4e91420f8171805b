//go:build measure

package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestLogTimes measures how long calls take Redis for a sliding_log of a million timestamps
// that is filled, decided, and charged debts, as TestPermitTimes does: while its value grows, which
// Redis copies at times, and when it has its full length.
func TestLogTimes(t *testing.T) {
	const n, window = 1_000_000, 5 * time.Second
	srv := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
	start := time.Now()
	s := New(Options{Name: "redis", Clock: func() int64 { return storekit.Hour + time.Since(start).Microseconds() }, ConnOptions: ConnOptions{
		Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: time.Minute, DialTimeout: time.Minute,
	}}, silent{})
	s.Start(0)
	t.Cleanup(func() { _ = s.Destruct() })
	m := &timing{T: t, client: srv.Client(), pid: srv.Pid()}
	c := kit.NewTestCounter(t, "times", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: n, Window: window.Microseconds(), Cost: 1}})
	decide := func(times int, cost int64) {
		for range times {
			check := storekit.CheckOf(cost, c)
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

// TestPutBackTimes measures how long the call takes Redis that puts back a log of which nearly all its limit is used.
func TestPutBackTimes(t *testing.T) {
	srv := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
	m := &timing{T: t, client: srv.Client(), pid: srv.Pid()}
	for _, limit := range []int64{2048, 4096, 8192} {
		f, spec := newFleet(t, srv, 1), lostSpecs()["sliding_log"]
		spec.Spec.Limit = limit
		c, least := f.counters(t, fmt.Sprint("times", limit), spec), time.Hour
		for round := range uint64(30) {
			k := stores.Key{Hi: 1, Lo: uint64(limit) + round}
			for _, cost := range []int64{limit/2 - 10, limit / 2, 1} {
				f.v.now += 1_000
				f.decide(0, c[0], k, cost)
			}
			f.v.flush(t)
			m.client.Do(t.Context(), "slowlog", "reset")
			f.v.now += 1_000
			check, longest := f.decide(0, c[0], k, 1), time.Duration(0)
			for range 2 { // the call that finds it lost, and the one that puts it back
				f.v.now += 1_000
				check = f.decide(0, c[0], k, 1)
			}
			if left := check.Zones[0].Results[0].Remaining; left > 10 {
				t.Fatalf("%d of %d left", left, limit)
			}
			for _, l := range m.client.SlowLogGet(t.Context(), 1_000).Val() {
				if l.Args[0] == "evalsha" {
					longest = max(longest, l.Duration)
				}
			}
			least = min(least, longest)
		}
		t.Logf("a log of %d: the longest call of a round took %v at least", limit, least)
	}
}
