package redis

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestStoreOutlivesItsConfiguration destructs a store while a request holds it: the request
// is decided and settled in Redis. Then the connections are closed.
func TestStoreOutlivesItsConfiguration(t *testing.T) {
	srv, ctx := redistest.Start(t), context.Background()
	s := newTestShared(t, srv, func() int64 { return storekit.Hour })
	s.endAtOnce()
	c := kit.TenPerHour(t, "outlives", false)
	s.Hold()
	if err := s.Destruct(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * retryEvery) // long enough to close what nothing holds
	check := storekit.CheckOf(1, c)
	if s.Decide(ctx, check); !check.Admitted || check.Mode != stores.ModeShared {
		t.Errorf("admitted %v in mode %v, want Redis to decide", check.Admitted, check.Mode)
	}
	s.Finish(ctx, &check.Zones[0], 4)
	check = storekit.CheckOf(1, c)
	if s.Decide(ctx, check); check.Zones[0].Results[0].Remaining != 4 {
		t.Errorf("%d left of 10 after 1, 4 and 1, want 4", check.Zones[0].Results[0].Remaining)
	}
	s.Release()
	waitFor(t, "the connections to be closed", s.isClosed)
}

// TestDestructedStoreIsSilent destructs a store whose Redis then goes away. What its
// requests find is not reported, and what they settle is charged when Redis is back.
func TestDestructedStoreIsSilent(t *testing.T) {
	srv, ctx, start := redistest.Start(t), context.Background(), time.Now()
	s := newTestShared(t, srv, func() int64 { return storekit.Hour + time.Since(start).Microseconds() }) // a report fails the test
	s.endAtOnce()
	c := kit.TenPerHour(t, "silent", false)
	check := storekit.CheckOf(1, c)
	s.Decide(ctx, check)
	s.Hold()
	if err := s.Destruct(); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	for range failuresToOpen {
		s.Finish(ctx, &check.Zones[0], 1)
	}
	if !owes(c) {
		t.Fatal("nothing is owed")
	}
	srv.Run()
	waitFor(t, "the debt to be charged", func() bool { return !owes(c) })
	s.Release()
	waitFor(t, "the connections to be closed", s.isClosed)
}

// TestStoreLingers counts the uses of a store. It is needed while one lasts, and for a time
// after the last.
func TestStoreLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(Store)
		s.Hold()
		needed := s.uses.recently(lingers)
		wait := func(d time.Duration, want bool) {
			t.Helper()
			time.Sleep(d)
			if got := needed(); got != want {
				t.Errorf("needed: %v, want %v", got, want)
			}
		}
		wait(time.Hour, true)
		s.Release()
		wait(lingers-1, true)
		s.Hold() // and released before it is looked at
		s.Release()
		wait(1, true)
		wait(lingers-1, true)
		wait(1, false)
	})
}

// TestDestructedStoreNoticesLoss empties Redis while a request holds a permit of a store whose
// configuration was replaced, which sends no heartbeats. Its permits are reported again before
// they are to be renewed: time hardly passes.
func TestDestructedStoreNoticesLoss(t *testing.T) {
	srv, ctx := redistest.Start(t), context.Background()
	var clock atomic.Int64
	s := newTestShared(t, srv, func() int64 { return storekit.Hour + clock.Add(1) })
	s.endAtOnce()
	c := kit.NewTestCounter(t, "held", 2, false, nil)
	c.Table = memory.NewTable(c.Rules, 100)
	check := storekit.CheckOf(1, c)
	if s.Decide(ctx, check); !check.Zones[0].Permit.Taken {
		t.Fatal("the request has no permit")
	}
	s.Hold()
	if err := s.Destruct(); err != nil {
		t.Fatal(err)
	}
	rdb := goredis.NewClient(&goredis.Options{Addr: srv.Addr})
	defer func() { _ = rdb.Close() }()
	if err := rdb.FlushDB(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the permit to be reported", func() bool { return len(rdb.Keys(ctx, "*:permits").Val()) == 1 })
	s.Finish(ctx, &check.Zones[0], 0)
	s.Release()
	waitFor(t, "the connections to be closed", s.isClosed)
}
