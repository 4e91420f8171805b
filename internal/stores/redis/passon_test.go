package redis

import (
	"context"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestDebtsPassToTheStoreThatFollows replaces a store by one with another option while Redis
// does not answer. What the first one admitted alone, and what its requests settle later, is
// charged in Redis when it is back.
func TestDebtsPassToTheStoreThatFollows(t *testing.T) {
	const keys, each = 200, 5
	srv, ctx, start := redistest.Start(t), context.Background(), time.Now()
	begin := func(timeout time.Duration) *Store {
		s := New(Options{
			Name: "redis", Clock: func() int64 { return storekit.Hour + time.Since(start).Microseconds() },
			ConnOptions: ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: timeout, DialTimeout: time.Second},
		}, silent{})
		t.Cleanup(func() { _ = s.Destruct() })
		return s
	}
	old, next := begin(200*time.Millisecond), begin(5*time.Second)
	c := kit.NewTestCounter(t, "follows", 0, false, nil, storekit.RuleSpec{
		Alg: new(algorithms.FixedWindow), Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1, Overdraws: true},
	})
	inRedis := func(s *Store) func() bool {
		return func() bool {
			check := storekit.CheckOfKey(c, keys)
			s.Decide(ctx, check)
			return check.Mode == stores.ModeShared
		}
	}
	old.Start(1)
	waitFor(t, "Redis to decide", inRedis(old))
	late := storekit.CheckOfKey(c, keys+1) // settled after the reload
	old.Decide(ctx, late)
	old.Hold()

	srv.Stall()
	for old.conn.anyUsable() {
		inRedis(old)()
	}
	for k := range uint64(keys) {
		for range each {
			check := storekit.CheckOfKey(c, k)
			if old.Decide(ctx, check); !check.Admitted {
				t.Fatal("denied")
			}
		}
	}
	next.Begin(old)
	next.BeginAs(old)
	next.Start(1)
	old.PassOn(next)
	_ = old.Destruct()
	old.Finish(ctx, &late.Zones[0], 7)
	old.Release()
	time.Sleep(4 * retryEvery) // Redis answers nothing that is sent meanwhile
	srv.Resume()

	waitFor(t, "Redis to decide", inRedis(next))
	waitFor(t, "the debts to be charged", func() bool { return !owes(c) })
	used := func(key uint64) int64 {
		check := storekit.CheckOfKey(c, key)
		check.Peek = true
		check.ResetResults()
		if next.Decide(ctx, check); check.Mode != stores.ModeShared {
			t.Fatalf("mode %v", check.Mode)
		}
		return 100 - check.Zones[0].Results[0].Remaining
	}
	var charged int64
	for k := range uint64(keys) {
		charged += used(k)
	}
	if charged != keys*each {
		t.Errorf("%d charged of %d", charged, keys*each)
	}
	if n := used(keys + 1); n != 8 {
		t.Errorf("%d charged of 1 and a settled 7", n)
	}
}

// TestDebtsPassThoughNoSlotsAreKnown replaces a store while no node of a Cluster answers. The
// store that follows does not know which of them has a key, and so which of them are away: a call
// that waits for that in vain was not sent, and what it was to charge is owed still.
func TestDebtsPassThoughNoSlotsAreKnown(t *testing.T) {
	ctx := context.Background()
	begin := func() *Store {
		s := New(Options{Name: "redis", Clock: func() int64 { return storekit.Hour }, ConnOptions: ConnOptions{
			Addresses: []string{"a:1", "b:2"}, Cluster: true, Lazy: true, Prefix: "diana", Timeout: 10 * time.Millisecond, DialTimeout: time.Second,
			Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, os.ErrDeadlineExceeded
			},
		}}, silent{})
		s.connectOnly() // without heartbeats
		t.Cleanup(s.closeClient)
		return s
	}
	old, next := begin(), begin()
	c := kit.NewTestCounter(t, "follows", 0, false, nil, storekit.RuleSpec{
		Alg: new(algorithms.FixedWindow), Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1},
	})
	old.conn.nodes.beginDown("")
	for range 9 { // which Redis is not asked for
		old.Decide(ctx, storekit.CheckOfKey(c, 1))
	}
	old.PassOn(next)
	check := storekit.CheckOfKey(c, 1)
	if next.Decide(ctx, check); check.Mode != stores.ModeFallback {
		t.Fatalf("mode %v", check.Mode)
	}
	h, _ := memory.TableOf(c).Snapshots().Take(&check.Zones[0], next.o.instant(storekit.Hour, storekit.Hour), false)
	if want := [][]int64{{storekit.Hour, 10}}; !slices.EqualFunc(h.Debts, want, slices.Equal) {
		t.Errorf("owed %v, want %v", h.Debts, want)
	}
}

// TestLossPassesToTheStoreThatFollows replaces a store that has noticed a loss of Redis' memory, and has
// not put everything back. The store that follows does.
func TestLossPassesToTheStoreThatFollows(t *testing.T) {
	srv, ctx, start := redistest.Start(t), context.Background(), time.Now()
	begin := func() *Store {
		s := New(Options{
			Name: "redis", Clock: func() int64 { return storekit.Hour + time.Since(start).Microseconds() },
			ConnOptions: ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: time.Second},
		}, silent{})
		t.Cleanup(func() { _ = s.Destruct() })
		return s
	}
	ended, end := context.WithCancel(ctx)
	end()
	for name, noticed := range map[string]func(s *Store){
		"a key is missing":   (*Store).loseKey,
		"the memory is lost": (*Store).loseMemory,
		"it is being put back": func(s *Store) {
			s.loseMemory()
			s.payDebts(ended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := begin(), begin()
			old.connectOnly() // without maintenance, which would put back
			c := kit.TenPerHour(t, "z", false)
			storekit.Adopt(t, old, c)
			check := storekit.CheckOfKey(c, 1)
			waitFor(t, "Redis to decide", func() bool {
				old.Decide(ctx, check)
				return check.Mode == stores.ModeShared
			})
			next.Begin(old)
			next.BeginAs(old)
			after := kit.TenPerHour(t, "z", false) // of the configuration that follows
			after.Table = c.Table
			storekit.Adopt(t, next, after)
			next.Start(1)
			waitFor(t, "the first heartbeat", func() bool { return next.conn.nodes.first.told.Load() != 0 })
			key := namesOf("diana", &check.Zones[0])[0]
			if n, err := srv.Client().Del(ctx, key).Result(); n != 1 || err != nil {
				t.Fatalf("%d keys %q deleted: %v", n, key, err)
			}
			noticed(old)
			old.PassOn(next)
			waitFor(t, "the key is put back", func() bool { return srv.Client().Exists(ctx, key).Val() == 1 })
		})
	}
}

// TestPermitsPassToTheStoreThatFollows replaces a store twice while Redis is away. What the
// requests of each hold counts for those that follow.
func TestPermitsPassToTheStoreThatFollows(t *testing.T) {
	srv, ctx, start, held := redistest.Start(t), context.Background(), time.Now(), new(memory.Permits)
	begin := func(timeout time.Duration) *Store {
		s := New(Options{
			Name: "redis", Held: held, Clock: func() int64 { return storekit.Hour + time.Since(start).Microseconds() },
			ConnOptions: ConnOptions{Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: timeout, DialTimeout: time.Second},
		}, nil)
		t.Cleanup(func() { _ = s.Destruct() })
		return s
	}
	c := kit.NewTestCounter(t, "follows", 4, false, nil)
	s := begin(5 * time.Second)
	s.Start(1)
	var open []*stores.Check
	var of []*Store
	decide := func(s *Store, want int) {
		t.Helper()
		n := 0
		for range 6 {
			check := storekit.CheckOfKey(c, 1)
			if s.Decide(ctx, check); check.Admitted {
				n++
				open, of = append(open, check), append(of, s)
			}
		}
		if n != want {
			t.Errorf("%d are admitted, want %d", n, want)
		}
	}
	waitFor(t, "Redis to decide", func() bool {
		check := storekit.CheckOfKey(c, 2)
		s.Decide(ctx, check)
		s.Finish(ctx, &check.Zones[0], 0)
		return check.Mode == stores.ModeShared
	})
	decide(s, 4)
	srv.Kill()
	for _, timeout := range []time.Duration{50 * time.Millisecond, 60 * time.Millisecond} {
		next := begin(timeout)
		next.Begin(s)
		next.BeginAs(s)
		next.Start(1)
		_ = s.Destruct()
		s = next
		decide(s, 0)
	}
	of[0].Finish(ctx, &open[0].Zones[0], 0)
	decide(s, 1)
	for i := range open[1:] {
		of[i+1].Finish(ctx, &open[i+1].Zones[0], 0)
	}
	decide(s, 4)
}
