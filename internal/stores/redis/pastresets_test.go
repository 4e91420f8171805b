package redis

import (
	"context"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// hearing is an observer that clears what its store knows of keys that others reset.
type hearing struct {
	noObserver
	store *Store
	c     *stores.Counter
	heard chan stores.Key
}

func (h *hearing) Reset(_, _ string, k stores.Key) {
	h.store.ResetLocal([]*stores.Counter{h.c}, k)
	h.heard <- k
}

func (*hearing) Unsubscribed(string, error) {}

// resetInstances starts instances with a counter each, which reach a server by an address and hear of each other's resets.
func resetInstances(t *testing.T, srv *redistest.Server, address string, n int, counter func() *stores.Counter) (all []*Store, of []*hearing) {
	t.Helper()
	for range n {
		h := &hearing{c: counter(), heard: make(chan stores.Key, 100)}
		h.store = New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{address}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second,
		}}, h)
		storekit.Adopt(t, h.store, h.c)
		h.store.Start(1)
		t.Cleanup(func() { _ = h.store.Destruct() })
		all, of = append(all, h.store), append(of, h)
	}
	for _, s := range all {
		waitFor(t, "the instances", func() bool { return s.Instances() == int64(n) })
	}
	ctx, admin := context.Background(), srv.Client()
	waitFor(t, "all to subscribe", func() bool {
		return admin.PubSubNumSub(ctx, "diana:{resets}").Val()["diana:{resets}"] == int64(n)
	})
	return all, of
}

// TestResetAfterTheDump resets keys that Redis has saved before, and restarts Redis from that. Of instances that made
// the reset or heard of it, the one that goes on has it in force again: the counts and the block of before are gone. So it
// is if the reply is slow that shows the restart, by which the server's clock appears to be behind.
func TestResetAfterTheDump(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		gone, looks int
		slow        time.Duration
	}{"who reset it": {1, 0, 0}, "who heard of it": {0, 1, 0}, "both": {-1, 1, 0}, "by a slow reply": {1, 0, 5 * leastSet * time.Microsecond / 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, srv, k, other, later := context.Background(), redistest.Start(t), testKey(1), testKey(2), testKey(3)
			counter := func() *stores.Counter {
				c := kit.TenPerHour(t, "z", false)
				c.Blocks, c.Blocked = []int64{day}, memory.NewBlocks(1000)
				return c
			}
			way := redistest.StartProxy(t, srv.Addr, 0)
			all, hear := resetInstances(t, srv, way.Addr, 3, counter)
			decide := func(i int, k stores.Key) *stores.Check {
				check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: hear[i].c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
				if all[i].Decide(ctx, check); check.Mode != stores.ModeShared {
					t.Fatalf("mode %v", check.Mode)
				}
				return check
			}
			for _, k := range []stores.Key{k, other} {
				for decide(2, k).Admitted { // and then blocked
				}
			}
			if err := srv.Client().Do(ctx, "save").Err(); err != nil {
				t.Fatal(err)
			}
			for _, k := range []stores.Key{k, later} {
				if err := all[0].Reset(ctx, "z", []*stores.Counter{hear[0].c}, k); err != nil {
					t.Fatal(err)
				}
				for _, h := range hear[1:] {
					waitFor(t, "the message", func() bool { return len(h.heard) > 0 })
					<-h.heard
				}
			}
			for range 3 {
				if !decide(2, later).Admitted {
					t.Fatal("denied after the reset")
				}
			}
			if of.gone >= 0 {
				_ = all[of.gone].Destruct()
			}
			_ = all[2].Destruct()
			srv.Kill()
			way.Set(of.slow, false)
			told := &all[of.looks].conn.nodes.first.told
			before := told.Load()
			srv.Run()
			waitFor(t, "a heartbeat", func() bool { now := told.Load(); return now != before && now != -before })
			way.Set(0, false)
			left := func(k stores.Key) int64 {
				check := &stores.Check{Peek: true, Zones: []stores.ZoneCheck{{Counter: counter(), Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
				if all[of.looks].Decide(ctx, check); check.Mode != stores.ModeShared || check.Zones[0].Block.Until != 0 {
					return -1
				}
				return check.Zones[0].Results[0].Remaining
			}
			waitFor(t, "the reset", func() bool { return left(k) == 10 })
			waitFor(t, "a check that is admitted", func() bool { return decide(of.looks, k).Admitted })
			if decide(of.looks, other).Admitted {
				t.Error("a key that was not reset is not blocked any more")
			}
		})
	}
}

// hear has the second instance hear of the reset that the first has made.
func (f *resetFleet) hear() { f.all[1].ResetLocal(f.c[1:2], f.k) }

// notice has an instance notice that Redis has lost its memory.
func (f *resetFleet) notice(i int) {
	f.all[i].setTime(f.v.now)
	f.all[i].isForgotten()
	f.all[i].payDebts(context.Background())
	f.later()
}

// TestUsedSinceAReset has Redis lose all it has after a reset. What was used since is put back, and what is used then is
// not lost when an instance notices: the one that used it, or another, first or last.
func TestUsedSinceAReset(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		for when, notice := range map[string][2][]int{"before": {{1}, {0}}, "after": {nil, {1, 0}}, "another": {nil, {0, 1}}} {
			f := newResetFleet(t, srv, "since-"+name+"-"+when, spec)
			f.use(1, 20)
			f.reset(t)
			f.hear()
			f.later()
			f.use(1, 7)
			f.later()
			f.v.flush(t)
			for _, i := range notice[0] {
				f.notice(i)
			}
			f.use(1, 4)
			f.later()
			for _, i := range notice[1] {
				f.notice(i)
			}
			if left := f.left(t); left != 89 {
				t.Errorf("%s, noticed %s: %d left after 11 were used since the reset, want 89", name, when, left)
			}
		}
	}
}

// TestUsedSinceAResetThoughAClockIsSet has a script flushed, which may have been a restart, after the clock of Redis was set
// since a reset, or that of the instance stood still with its machine. Redis has the mark: what was used since stays.
func TestUsedSinceAResetThoughAClockIsSet(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		f := newResetFleet(t, srv, "set-"+name, spec)
		f.use(1, 20)
		f.reset(t)
		f.later()
		f.use(1, 7)
		f.later()
		for i := range f.all[0].past.all {
			f.all[0].past.all[i].at += 3_000_000
		}
		f.v.now += 3_000_000
		f.all[0].past.lost(true)
		f.notice(0)
		if left := f.left(t); left != 93 {
			t.Errorf("%s: %d left of 100 after 7 were used since the reset, want 93", name, left)
		}
	}
}

// TestToldBeforeAResetIsAgain has Redis go back to a time before a reset, and tell an instance so before another one has the
// reset in force again. The instance does not put back what it was told.
func TestToldBeforeAResetIsAgain(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		f := newResetFleet(t, srv, "told-"+name, spec)
		f.use(1, 20)
		ctx := context.Background()
		key, mark := f.names()
		before := f.v.client.Dump(ctx, key).Val()
		f.reset(t)
		f.hear()
		f.later()
		f.v.client.Del(ctx, mark)
		if err := f.v.client.RestoreReplace(ctx, key, 0, before).Err(); err != nil {
			t.Fatal(err)
		}
		if left := f.decide(1, f.c[1], f.k, 1).Zones[0].Results[0].Remaining; left != 79 {
			t.Fatalf("%s: %d left after Redis went back, want 79", name, left)
		}
		f.later()
		for i, s := range f.all {
			s.past.lost(true)
			f.notice(i)
		}
		if left := f.left(t); left != 100 {
			t.Errorf("%s: %d left after the reset is in force again, want 100", name, left)
		}
	}
}

// TestResetsWaitForTheNode notices a loss while the node does not answer, and passes resets on to the store that follows.
// They are in force again when the node answers.
func TestResetsWaitForTheNode(t *testing.T) {
	f := newResetFleet(t, redistest.Start(t), "waits", resetSpecs()["gcra"])
	f.use(1, 20)
	f.reset(t)
	f.all[0].past.lost(true)
	f.all[0].PassOn(f.all[1])
	_, mark := f.names()
	f.v.flush(t)
	f.set(1, faultRefused)
	f.all[1].past.again(t.Context())
	n := f.all[1].conn.nodes.first
	if !n.unswept.Swap(false) || f.v.client.Exists(t.Context(), mark).Val() > 0 {
		t.Fatal("a reset is taken for one in force")
	}
	if !f.all[1].past.older.Load() {
		t.Error("the store that follows does not know that Redis may be older than the reset")
	}
	f.set(1, noFault)
	f.notice(1)
	if n.unswept.Load() || f.v.client.Exists(t.Context(), mark).Val() == 0 {
		t.Error("the reset is not in force again")
	}
}

// TestKnownResets bounds what is known of resets.
func TestKnownResets(t *testing.T) {
	var p pastResets
	one := func(n uint64, at int64) pastReset {
		return pastReset{testKey(n), []keyToReset{{"key", time.Hour}, {"block", 0}}, at, at}
	}
	for n := range uint64(mostPast + 1) {
		p.add(one(n, 1))
	}
	p.add(one(5, 2))
	all := p.list()
	if len(all) != mostPast || all[0].tag != testKey(1) || all[mostPast-1].tag != testKey(5) || all[mostPast-1].at != 2 || len(all[0].keys) != 1 {
		t.Errorf("%d, first %+v, last %+v", len(all), all[0], all[len(all)-1])
	}
}
