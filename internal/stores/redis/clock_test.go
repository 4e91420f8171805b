package redis

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// stepCounter counts the states that were mended.
type stepCounter struct {
	quiet
	steps atomic.Int64
}

func (c *stepCounter) ClockSteps(string) { c.steps.Add(1) }

const clockLimit = 5

// clockRules are one rule of each algorithm, 5 in a minute: nothing comes back
// while the test runs.
func clockRules() map[string]storestest.RuleSpec {
	sp := algorithms.Spec{Limit: clockLimit, Window: 60_000_000, Cost: 1}
	return map[string]storestest.RuleSpec{
		"fixed_window":         {Alg: &algorithms.FixedWindow{}, Spec: sp},
		"fixed_window-align":   {Alg: &algorithms.FixedWindow{Align: true}, Spec: sp},
		"sliding_log":          {Alg: &algorithms.SlidingLog{}, Spec: sp},
		"sliding_window":       {Alg: &algorithms.SlidingWindow{}, Spec: sp},
		"gcra":                 {Alg: &algorithms.GCRA{}, Spec: sp},
		"token_bucket":         {Alg: &algorithms.TokenBucket{}, Spec: sp},
		"leaky_bucket-nodelay": {Alg: &algorithms.LeakyBucket{NoDelay: true}, Spec: sp},
	}
}

// burst asks until it is denied and returns how often it passed, and the retry.
func burst(t *testing.T, s *Store, c *stores.Counter) (passed int, retry int64) {
	t.Helper()
	for passed <= 2*clockLimit { // an edge of a window may pass meanwhile
		check := storestest.LocalAsk(c, 1)
		s.Decide(context.Background(), check)
		if check.Mode != stores.ModeShared {
			t.Fatalf("mode %v", check.Mode)
		}
		if !check.Admitted {
			return passed, check.Zones[0].Results[0].Retry
		}
		passed++
	}
	t.Fatalf("%d passed and none was denied", passed)
	return passed, 0
}

// TestRedisClockSteps steps the clock of a real Redis by an hour, forward and
// back: each step costs at most one further limit, nobody is locked out longer
// than one window, every key lives as long as its rules need, and the mended
// states are counted.
func TestRedisClockSteps(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	s := newTestShared(t, srv, func() int64 { return storestest.Hour })
	counter := &stepCounter{quiet: quiet{t}}
	s.Observe(counter)
	client := srv.Client()
	for name, spec := range clockRules() {
		t.Run(name, func(t *testing.T) {
			clock.Set(0)
			c := storestest.NewTestCounter(t, name, 0, false, nil, spec)
			burst(t, s, c)
			for i, ahead := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
				clock.Set(ahead)
				passed, retry := burst(t, s, c)
				if passed > clockLimit && name != "fixed_window-align" { // whose next window may begin
					t.Errorf("step %d: %d passed, want at most one further limit", i, passed)
				}
				if retry <= 0 || retry > 66_000_000 { // and one part of a sliding_window
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
		t.Error("no mended state was counted")
	}
}

// TestPromotedReplicaWithALateClock promotes a replica whose clock is an hour
// behind its master's. What it inherits holds nobody longer than one window.
func TestPromotedReplicaWithALateClock(t *testing.T) {
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica, clock := redistest.StartWithClock(t)
	clock.Set(-time.Hour)
	s := newTestShared(t, master, func() int64 { return storestest.Hour })
	host, port, _ := strings.Cut(master.Addr, ":")
	follower := replica.Client()
	if err := follower.ReplicaOf(context.Background(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	counters := make(map[string]*stores.Counter)
	for name, spec := range clockRules() {
		counters[name] = storestest.NewTestCounter(t, name, 0, false, nil, spec)
		burst(t, s, counters[name])
	}
	if n, err := master.Client().Wait(context.Background(), 1, 10*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have caught up: %v", n, err)
	}
	if err := follower.ReplicaOf(context.Background(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	after := newTestShared(t, replica, func() int64 { return storestest.Hour })
	for name, c := range counters {
		passed, retry := burst(t, after, c)
		if passed > clockLimit && name != "fixed_window-align" {
			t.Errorf("%s: %d passed after the promotion, want at most one further limit", name, passed)
		}
		if retry > 66_000_000 { // and one part of a sliding_window
			t.Errorf("%s: denied for %d microseconds, want at most one window", name, retry)
		}
	}
}
