package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// usedIn returns what Redis has of a key of a limit of 10, as an instance that never saw the key is told.
func usedIn(t *testing.T, s *Store, n uint64) int64 {
	t.Helper()
	check := storekit.CheckOfKey(kit.TenPerHour(t, "z", false), n)
	check.Peek = true
	if s.Decide(context.Background(), check); check.Mode != stores.ModeShared {
		return -1
	}
	return 10 - check.Zones[0].Results[0].Remaining
}

// TestOlderDumpIsNoticed restarts Redis from a dump that it saved before the last charges, right before or
// after the last heartbeat. The dump still knows the instances. What they know is put back unasked, also by
// the instance that is not the first to call Redis.
func TestOlderDumpIsNoticed(t *testing.T) {
	for _, beat := range []bool{false, true} { // whether the instances send a heartbeat after the dump
		srv := redistest.Start(t)
		start := func() *Store {
			s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
				Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
			}}, silent{})
			s.Start(1)
			t.Cleanup(func() { _ = s.Destruct() })
			return s
		}
		all, looks := []*Store{start(), start()}, start()
		waitFor(t, "the instances", func() bool { return all[0].Instances() == 3 && all[1].Instances() == 3 && looks.Instances() == 3 })
		var counters []*stores.Counter
		charge := func() {
			for i, s := range all {
				check := storekit.CheckOfKey(counters[i], uint64(1+i))
				if s.Decide(context.Background(), check); check.Mode != stores.ModeShared || !check.Admitted {
					t.Fatalf("admitted %v in mode %v", check.Admitted, check.Mode)
				}
			}
		}
		for _, s := range all {
			c := kit.TenPerHour(t, "z", false)
			storekit.Adopt(t, s, c)
			counters = append(counters, c)
		}
		charge()
		client := srv.Client()
		if err := client.Do(context.Background(), "save").Err(); err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if told := s.conn.nodes.first.told.Load(); beat {
				waitFor(t, "a heartbeat", func() bool { return s.conn.nodes.first.told.Load() > told })
			}
		}
		charge()
		charge()
		srv.Kill()
		srv.Run()
		for i := range all {
			waitFor(t, "what was charged after the dump", func() bool { return usedIn(t, looks, uint64(1+i)) == 3 })
		}
	}
}

// TestHeartbeatOfAnOlderList has Redis go back to heartbeats from before, without a restart. The instance
// that notices has the others notice, whose last heartbeats are in the old list. If there is none, Redis has
// nothing from before, either.
func TestHeartbeatOfAnOlderList(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 2)
	lost := make([]string, 2)
	ahead := int64(0) // Redis' clock
	beat := func(i int) {
		f.v.now += 1_000_000
		f.all[i].setTime(f.v.now - ahead)
		if err := f.all[i].heartbeat(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range f.all {
		s.instances.process = uint64(1 + i)
		s.instances.lost = func(older bool) { lost[i] += map[bool]string{false: "all ", true: "older "}[older] }
		beat(i)
	}
	ctx, name := context.Background(), "diana:{"+beatTag+"}"
	old := f.v.client.Get(ctx, name).Val() // of both
	beat(0)
	if lasts := f.v.client.PTTL(ctx, name).Val(); lasts < 30*24*time.Hour {
		t.Errorf("the list is kept for %v, want it in each dump", lasts)
	}
	noticed := func(want string) {
		for _, i := range []int{0, 1, 0, 1} {
			beat(i)
		}
		if lost[0] != want || lost[1] != want {
			t.Errorf("noticed %q, want %q of each", lost, want)
		}
		clear(lost)
	}
	noticed("")
	f.v.client.Set(ctx, name, old, time.Minute)
	noticed("older ")
	f.v.client.Del(ctx, name)
	noticed("all ")
	for _, s := range f.all { // each has found that Redis does not know the script any more
		s.conn.nodes.first.told.Store(-s.conn.nodes.first.told.Load())
	}
	f.v.client.Del(ctx, name)
	noticed("all ")
	for _, set := range []int64{storekit.Hour, -storekit.Hour / 2} { // what is in the list appears to be of long ago, or not yet
		ahead += set
		f.v.now += set
		for range 2 {
			for i := range f.all {
				beat(i)
			}
		}
		if strings.Contains(lost[0]+lost[1], "older") {
			t.Errorf("Redis' clock is set by %v: noticed %q", time.Duration(set)*time.Microsecond, lost)
		}
		clear(lost)
	}
	f.v.client.Del(ctx, name)
	beat(0)
	saved := f.v.client.Get(ctx, name).Val()
	beat(0)
	f.v.client.Set(ctx, name, saved, time.Minute)
	clear(lost)
	beat(1)
	beat(0)
	if lost[0] != "older " || lost[1] != "all " {
		t.Errorf("noticed %q, want what is older by the first, which had seen the new list, and a loss of all by the second", lost)
	}
}

// TestEvictedHeartbeats has Redis evict the list of instances again and again. It says that few are alive
// after each, which is not accepted.
func TestEvictedHeartbeats(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 3)
	for i, s := range f.all {
		s.instances.process = uint64(1 + i)
	}
	start := time.Now()
	for second := range 30 {
		for i, s := range f.all {
			f.v.now += 333_333
			s.setTime(f.v.now)
			live, missing, err := s.instances.count(t.Context(), s.conn.nodes.first, beatTag, "")
			if err != nil {
				t.Fatal(err)
			}
			s.instances.counts(live, missing && second > 0, start.Add(time.Duration(second)*time.Second))
			if n := s.Instances(); n != 3 {
				t.Fatalf("second %d: instance %d counts %d", second, i, n)
			}
		}
		f.v.client.Del(t.Context(), "diana:{"+beatTag+"}")
	}
}
