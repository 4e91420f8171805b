package redis

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// stepCounter counts the clock steps that are reported.
type stepCounter struct {
	strictObserver
	steps atomic.Int64
}

func (c *stepCounter) ClockSteps(string) { c.steps.Add(1) }

const clockLimit = 5

// clockRules returns one rule of each algorithm, 5 per minute, so that little is
// released while a test runs.
func clockRules() map[string]storekit.RuleSpec {
	sp := algorithms.Spec{Limit: clockLimit, Window: 60_000_000, Cost: 1}
	return map[string]storekit.RuleSpec{
		"fixed_window":         {Alg: &algorithms.FixedWindow{}, Spec: sp},
		"fixed_window-align":   {Alg: &algorithms.FixedWindow{Align: true}, Spec: sp},
		"sliding_log":          {Alg: &algorithms.SlidingLog{}, Spec: sp},
		"sliding_window":       {Alg: &algorithms.SlidingWindow{}, Spec: sp},
		"gcra":                 {Alg: &algorithms.GCRA{}, Spec: sp},
		"token_bucket":         {Alg: &algorithms.TokenBucket{}, Spec: sp},
		"leaky_bucket-nodelay": {Alg: &algorithms.LeakyBucket{NoDelay: true}, Spec: sp},
	}
}

// exhaust makes checks until one is denied, and returns how many were admitted and
// the retry.
func exhaust(t *testing.T, s *Store, c *stores.Counter) (admitted int, retry int64) {
	t.Helper()
	for admitted <= 2*clockLimit { // a window may end meanwhile
		check := storekit.CheckOfKey(c, 1)
		s.Decide(context.Background(), check)
		if check.Mode != stores.ModeShared {
			t.Fatalf("mode %v", check.Mode)
		}
		if !check.Admitted {
			return admitted, check.Zones[0].Results[0].Retry
		}
		admitted++
	}
	t.Fatalf("%d admitted and none denied", admitted)
	return admitted, 0
}

// TestRedisClockSteps steps the clock of a real Redis by an hour, forward and back.
// Each step admits at most one further limit, no key is denied for longer than one
// window, no key lives longer than its rules need, and the repaired states are
// reported.
func TestRedisClockSteps(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	s := newTestShared(t, srv, func() int64 { return storekit.Hour })
	counter := &stepCounter{strictObserver: strictObserver{t}}
	s.Observe(counter)
	client := srv.Client()
	for name, spec := range clockRules() {
		t.Run(name, func(t *testing.T) {
			clock.Set(0)
			c := kit.NewTestCounter(t, name, 0, false, nil, spec)
			exhaust(t, s, c)
			for i, ahead := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
				clock.Set(ahead)
				admitted, retry := exhaust(t, s, c)
				if admitted > clockLimit && name != "fixed_window-align" { // the next window may begin
					t.Errorf("step %d: %d admitted, want at most one further limit", i, admitted)
				}
				if retry <= 0 || retry > 66_000_000 { // a window and a part of a sliding_window
					t.Errorf("step %d: denied for %d microseconds, want at most one window", i, retry)
				}
				for _, k := range client.Keys(context.Background(), "*:"+name+":*").Val() {
					if ttl := client.PTTL(context.Background(), k).Val(); ttl <= 0 || ttl > 67*time.Second {
						t.Errorf("step %d: key %s lives for %v, its rule needs at most 66s", i, k, ttl)
					}
				}
			}
		})
	}
	if counter.steps.Load() == 0 {
		t.Error("no repaired state was reported")
	}
}

// TestPromotedReplicaWithClockBehind promotes a replica whose clock is an hour
// behind its master's. The replicated states deny no key for longer than one
// window.
func TestPromotedReplicaWithClockBehind(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica, clock := redistest.StartWithClock(t)
	clock.Set(-time.Hour)
	s := newTestShared(t, master, func() int64 { return storekit.Hour })
	host, port, _ := strings.Cut(master.Addr, ":")
	follower := replica.Client()
	if err := follower.ReplicaOf(context.Background(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	counters := make(map[string]*stores.Counter)
	for name, spec := range clockRules() {
		counters[name] = kit.NewTestCounter(t, name, 0, false, nil, spec)
		exhaust(t, s, counters[name])
	}
	if n, err := master.Client().Wait(context.Background(), 1, 10*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas in sync: %v", n, err)
	}
	if err := follower.ReplicaOf(context.Background(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	after := newTestShared(t, replica, func() int64 { return storekit.Hour })
	for name, c := range counters {
		admitted, retry := exhaust(t, after, c)
		if admitted > clockLimit && name != "fixed_window-align" {
			t.Errorf("%s: %d admitted after the promotion, want at most one further limit", name, admitted)
		}
		if retry > 66_000_000 { // a window and a part of a sliding_window
			t.Errorf("%s: denied for %d microseconds, want at most one window", name, retry)
		}
	}
}
