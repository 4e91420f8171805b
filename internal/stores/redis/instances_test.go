package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestStoresOfAProcess runs two stores of one process that share a Redis and a prefix,
// and a store of another process. The two are one instance, their permits are not mixed
// up, and each learns of the other's resets but not of its own.
func TestStoresOfAProcess(t *testing.T) {
	srv := redistest.Start(t)
	var all []*Store
	var observers []*resetObserver
	for _, process := range []uint64{7, 7, 8} {
		o := new(resetObserver)
		s := New(Options{Name: "redis", Process: process, Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 10 * time.Second, DialTimeout: 10 * time.Second,
		}}, o)
		s.Start(0)
		t.Cleanup(func() { _ = s.Destruct() })
		all, observers = append(all, s), append(observers, o)
	}
	ctx := context.Background()
	for i, s := range all {
		waitFor(t, "both processes", func() bool { return s.Instances() == 2 })
		if n, err := s.countInstances(ctx); n != 2 || err != nil {
			t.Errorf("store %d: %d instances, %v, want 2", i, n, err)
		}
		waitFor(t, "both to read the format", func() bool { return s.Status().Readers == 2 })
	}
	c := holdingCounter(t, "both")
	var checks []*stores.Check
	for i, s := range all[:2] {
		checks = append(checks, storekit.CheckOfKey(c, 1))
		if s.Decide(ctx, checks[i]); !checks[i].Zones[0].Charged {
			t.Fatalf("store %d has no permit", i)
		}
	}
	all[0].Finish(ctx, &checks[0].Zones[0], 0)
	for i, admits := range []bool{true, false} { // the second store holds the other permit
		again := storekit.CheckOfKey(c, 1)
		if all[0].Decide(ctx, again); again.Zones[0].Charged != admits {
			t.Errorf("permit %d: charged %v, want %v", i, !admits, admits)
		}
	}
	waitFor(t, "all to subscribe", func() bool { return srv.Client().PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == 3 })
	k, last := stores.Key{Hi: 1, Lo: 2}, stores.Key{Hi: 3, Lo: 4}
	if err := all[0].Reset(ctx, "z", []*stores.Counter{c}, k); err != nil {
		t.Fatal(err)
	}
	srv.Client().Publish(ctx, "diana:{resets}", "z "+last.String()) // after it
	for i, told := range []bool{false, true, true} {
		waitFor(t, "the message", func() bool { return strings.Contains(observers[i].text(), last.String()) })
		if got := strings.Contains(observers[i].text(), k.String()); got != told {
			t.Errorf("store %d: told of the reset %v, want %v", i, got, told)
		}
	}
}

// TestFleets counts instances with one prefix whose keys have different secrets, so that
// they share no counts.
func TestFleets(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: virtualStart}
	for _, b := range []struct {
		fleet string
		live  int64
	}{{"", 1}, {"a", 1}, {"b", 1}, {"a", 2}, {"", 2}, {"a", 3}} {
		s := newVirtualShared(t, srv, v)
		s.instances.fleet = b.fleet
		v.tick()
		if n, err := s.countInstances(context.Background()); n != b.live || err != nil {
			t.Errorf("fleet %q: %d instances, %v, want %d", b.fleet, n, err, b.live)
		}
	}
	srv.CheckTTLs()
}

// TestShareGrowsOnceAllNodesDecide has a master of a Cluster go away while this instance counts as
// two, because it was restarted, and the others count one then. Until the master decides all its keys
// again, the share stays that with which they were warmed: the client of a key that is used up is
// denied.
func TestShareGrowsOnceAllNodesDecide(t *testing.T) {
	now := int64(storekit.Hour)
	conn, n, _ := newTestNodes(t, &now, "a:1", "b:2")
	s := New(Options{Name: "redis", Clock: func() int64 { return now }}, silent{})
	s.instances.conn = conn
	start := time.Now()
	counted := func(live int64, at time.Duration) { s.instances.set(live, start.Add(at)) }
	c := kit.TenPerHour(t, "z", false)
	used := storekit.CheckOfKey(c, 1)
	used.Zones[0].Rules, used.Zones[0].Results = c.Rules, []stores.Result{{Rule: c.Rules[0], State: make(algorithms.State, c.Rules[0].Words())}}
	s.fallback.Learn(&used.Zones[0], memory.Instant{Local: now, Shared: now}, false, func() {
		c.Rules[0].Charge(used.Zones[0].Results[0].State, now, 10, 0)
	})
	counted(2, 0)
	conn.failUntilOpen(n[1])
	for _, step := range []struct {
		what   string
		at     time.Duration
		change func()
		want   int64
	}{
		{"away", 0, func() {}, 2},
		{"away for long", 20 * time.Second, func() {}, 2},
		{"back", 21 * time.Second, n[1].answers, 2},
		{"in its ramp", 22 * time.Second, func() { now += rampLasts - 1 }, 2},
		{"deciding all its keys", 23 * time.Second, func() { now++ }, 1},
	} {
		step.change()
		counted(1, step.at)
		if got := s.Instances(); got != step.want {
			t.Errorf("the master is %s: %d instances, want %d", step.what, got, step.want)
		}
		check := storekit.CheckOfKey(c, 1)
		if s.fallback.Decide(check, nil); check.Admitted && step.want == 2 {
			t.Errorf("the master is %s: what was denied is admitted", step.what)
		}
	}
}
