package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

const day = 24 * storekit.Hour

// blockCounter returns a counter of 3 per second that blocks for a day, with blocks of its
// own.
func blockCounter(t *testing.T, zone string, hold bool) *stores.Counter {
	t.Helper()
	sp := algorithms.Spec{Limit: 3, Window: 1_000_000, Cost: 1, Overdraws: hold}
	c := kit.NewTestCounter(t, zone, 0, hold, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: sp})
	c.Blocks, c.Blocked = []int64{day}, memory.NewBlocks(1000)
	return c
}

// blockFleet is instances that each have a zone with a block.
func blockFleet(t *testing.T, srv *redistest.Server, zone string, n int) (*fleet, []*stores.Counter) {
	t.Helper()
	f := newFleet(t, srv, n)
	c := make([]*stores.Counter, n)
	for i := range c {
		c[i] = blockCounter(t, zone, false)
		storekit.Adopt(t, f.all[i], c[i])
	}
	return f, c
}

// wantBlock decides at an instance and fails the test unless the key is blocked, in that
// mode, for as long as a day after it was.
func (f *fleet) wantBlock(t *testing.T, what string, i int, c *stores.Counter, k stores.Key, since int64, mode stores.Mode) {
	t.Helper()
	check := f.decide(i, c, k, 1)
	z := &check.Zones[0]
	if want := since + day - f.v.now; check.Admitted || z.Block.Until != since+day || z.Results[0].Retry != want || z.Results[0].Remaining != 0 || check.Mode != mode {
		t.Fatalf("%s, instance %d: admitted %v in mode %v, block %+v, %+v, want it to last for %d", what, i, check.Admitted, check.Mode, z.Block, z.Results[0], want)
	}
}

// TestBlocksAreShared blocks a key at one instance for all. What follows neither lengthens
// the block nor writes anything, and it ends to the microsecond.
func TestBlocksAreShared(t *testing.T) {
	srv := redistest.Start(t)
	f, c := blockFleet(t, srv, "shared", 2)
	k, ctx := stores.Key{Hi: 1, Lo: 2}, context.Background()
	f.drain(0, c[0], k)
	since := f.v.now
	name := blockOf("diana", &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}})
	was := f.v.client.Dump(ctx, name).Val()
	for _, later := range []int64{1, 999_999, day / 2, day - 1} {
		f.v.now = since + later
		for i := range f.all {
			f.wantBlock(t, "shared", i, c[i], k, since, stores.ModeShared)
		}
	}
	if now := f.v.client.Dump(ctx, name).Val(); now != was || was == "" {
		t.Errorf("denials changed the block from %q to %q", was, now)
	}
	if ttl := f.v.client.PTTL(ctx, name).Val().Microseconds(); ttl < day-60_000_000 || ttl > day+1_000_000 {
		t.Errorf("the block lives for %d us, want a day", ttl)
	}
	f.v.now = since + day
	for i, left := range []int64{2, 1} {
		if z := f.decide(i, c[i], k, 1).Zones[0]; !z.Admits || z.Block.Until != 0 || z.Results[0].Remaining != left {
			t.Errorf("after the block, instance %d: %+v, %+v", i, z.Block, z.Results[0])
		}
	}
}

// TestBlocksWithoutRedis lets blocks that an instance knows go on without Redis. An
// instance that is alone starts none, and its debts start none.
func TestBlocksWithoutRedis(t *testing.T) {
	srv := redistest.Start(t)
	f, c := blockFleet(t, srv, "alone", 2)
	k, other := stores.Key{Hi: 1, Lo: 2}, stores.Key{Hi: 3, Lo: 4}
	f.drain(0, c[0], k)
	since := f.v.now
	f.v.now += 60_000_000
	f.set(-1, faultRefused)
	f.wantBlock(t, "alone", 0, c[0], k, since, stores.ModeFallback)
	f.drain(0, c[0], other)
	if n := c[0].Blocked.(*memory.Blocks).Count(f.v.now); n != 1 {
		t.Errorf("%d blocks, want the one that is known", n)
	}
	if check := f.decide(1, c[1], k, 1); !check.Admitted {
		t.Error("an instance that does not know the block denies")
	}
	f.set(-1, noFault)
	f.v.now += 2 * rampLasts
	for i := range f.all {
		f.wantBlock(t, "back", i, c[i], k, since, stores.ModeShared)
		if z := f.decide(i, c[i], other, 1).Zones[0]; z.Block.Until != 0 {
			t.Errorf("back, instance %d: %+v", i, z.Block)
		}
	}
}

// TestBlocksFollowTheClock moves what is said to be the time of Redis by more than a block lasts,
// as a failover to a node with another clock does. Without Redis the block lasts as long as it
// would have.
func TestBlocksFollowTheClock(t *testing.T) {
	srv := redistest.Start(t)
	k, other := stores.Key{Hi: 1, Lo: 2}, stores.Key{Hi: 3, Lo: 4}
	for _, ahead := range []int64{2 * day, -2 * day} {
		f, c := blockFleet(t, srv, fmt.Sprint("ahead", ahead), 1)
		f.drain(0, c[0], k)
		f.drain(0, c[0], other)
		since := f.v.now
		f.v.now += 60_000_000
		f.set(-1, faultRefused)
		f.all[0].stepClock(k, ahead)
		if z := f.decide(0, c[0], k, 1).Zones[0]; z.Admits || z.Block.Until != since+day+ahead || z.Results[0].Retry != since+day-f.v.now {
			t.Errorf("%d ahead: %+v, %+v", ahead, z.Block, z.Results[0])
		}
		if n := memory.BlocksOf(c[0]).Count(f.v.now); n != 2 {
			t.Errorf("%d ahead: %d blocks, want 2", ahead, n)
		}
		f.v.now += day - 60_000_000
		if z := f.decide(0, c[0], other, 1).Zones[0]; !z.Admits {
			t.Errorf("%d ahead, after a day: %+v", ahead, z.Block)
		}
	}
}

// TestLostBlocksArePutBack makes Redis forget blocks. The first check of an instance that
// knows a block puts it back, for as long as it would have lasted, and so does the
// background for keys that nobody checks; a later block is kept.
func TestLostBlocksArePutBack(t *testing.T) {
	srv := redistest.Start(t)
	k, other, ctx := stores.Key{Hi: 1, Lo: 2}, stores.Key{Hi: 3, Lo: 4}, context.Background()
	f, c := blockFleet(t, srv, "lost", 3)
	f.drain(0, c[0], k)
	since := f.v.now
	f.wantBlock(t, "told", 1, c[1], k, since, stores.ModeShared)
	f.drain(1, c[1], other)
	f.v.now += 60_000_000
	f.v.flush(t)
	f.wantBlock(t, "lost", 0, c[0], k, since, stores.ModeShared)
	f.wantBlock(t, "lost", 2, c[2], k, since, stores.ModeShared)

	name := blockOf("diana", &stores.ZoneCheck{Counter: c[1], Subject: stores.Subject{Key: other, Tag: other}})
	f.all[1].loseKey()
	for range 10 {
		f.all[1].setTime(f.v.now)
		f.all[1].payDebts(ctx)
	}
	if f.v.client.Exists(ctx, name).Val() != 1 {
		t.Error("the block of a key without a check was not put back")
	}
	f.wantBlock(t, "swept", 2, c[2], other, since, stores.ModeShared)

	// Redis' clock was an hour behind: the block is moved, and lasts as long.
	f.v.flush(t)
	f.v.now += 1_100_000 // past what was said lately
	for i := range f.all {
		f.all[i].forgetSaid()
	}
	local := f.v.now
	f.all[0].setTime(local - storekit.Hour)
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
	f.all[0].Decide(ctx, check)
	if got, want := check.Zones[0].Block.Until-check.Now, since+day-local; got != want {
		t.Errorf("put back on a clock an hour behind for %d, want %d", got, want)
	}
	// One that ends earlier than what Redis has changes nothing.
	b, _ := c[1].Blocked.(*memory.Blocks).FindAt(k, local)
	b.Until -= 1_000_000
	c[1].Blocked.(*memory.Blocks).Set(k, b, local)
	f.v.now = local - storekit.Hour
	f.v.client.Set(ctx, blockOf("diana", &check.Zones[0]), blockValue(f.v.now+day, day), 0)
	f.decide(1, c[1], k, 1)
	f.wantBlock(t, "later", 2, c[2], k, f.v.now, stores.ModeShared)
}

// TestResetOfBlockIsNotUndone resets a blocked key at an instance, of which another that
// knows the block has not heard.
func TestResetOfBlockIsNotUndone(t *testing.T) {
	srv := redistest.Start(t)
	k, ctx := stores.Key{Hi: 1, Lo: 2}, context.Background()
	f, c := blockFleet(t, srv, "reset", 2)
	f.drain(0, c[0], k)
	f.wantBlock(t, "told", 1, c[1], k, f.v.now, stores.ModeShared)
	if err := f.all[0].Reset(ctx, "reset", c[:1], k); err != nil {
		t.Fatal(err)
	}
	mark := blockOf("diana", &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}}) + resetSuffix
	if ttl := f.v.client.PTTL(ctx, mark).Val().Microseconds(); ttl < day {
		t.Errorf("the block is marked as reset for %d us, want a day at least", ttl)
	}
	f.v.now += 2_000_000
	for _, i := range []int{1, 0, 1} {
		if check := f.decide(i, c[i], k, 1); !check.Admitted {
			t.Errorf("instance %d: %+v", i, check.Zones[0].Block)
		}
	}
	// A block that starts after the reset is one.
	f.drain(0, c[0], k)
	since := f.v.now
	f.wantBlock(t, "again", 1, c[1], k, since, stores.ModeShared)
	f.v.now += 2_000_000
	f.wantBlock(t, "again", 1, c[1], k, since, stores.ModeShared)
	f.wantBlock(t, "again", 0, c[0], k, since, stores.ModeShared)

	// It stays known to an instance that puts back what it knows.
	f.all[1].loseKey()
	f.all[1].setTime(f.v.now)
	f.all[1].payDebts(ctx)
	f.all[1].forgetSaid()
	f.set(-1, faultRefused)
	f.wantBlock(t, "in an outage", 1, c[1], k, since, stores.ModeFallback)
}

// TestBlockOfHeldCosts denies because of costs that are held, which blocks nobody, and
// then because of what was charged.
func TestBlockOfHeldCosts(t *testing.T) {
	w := newBothStores(t)
	c, local := blockCounter(t, "held", true), blockCounter(t, "held", true)
	decide := func(at float64) (*stores.Check, *stores.Check) {
		w.set(at)
		check, same := storekit.CheckOf(1, c), storekit.CheckOf(1, local)
		w.Decide(context.Background(), check)
		w.local.Decide(context.Background(), same)
		compareChecks(t, fmt.Sprint("at ", at), check, same)
		return check, same
	}
	var open [3][2]*stores.Check
	for i := range open {
		open[i][0], open[i][1] = decide(100)
	}
	if check, _ := decide(100); check.Admitted || !check.Zones[0].Results[0].Held || check.Zones[0].Block.Until != 0 {
		t.Errorf("held: %+v, %+v", check.Zones[0].Results, check.Zones[0].Block)
	}
	for i := range open {
		w.v.tick()
		w.Finish(context.Background(), &open[i][0].Zones[0], 1)
		w.local.Finish(context.Background(), &open[i][1].Zones[0], 1)
	}
	if check, _ := decide(100); !check.Zones[0].Block.Started || check.Zones[0].Block.Span != day {
		t.Errorf("charged: %+v", check.Zones[0].Block)
	}
	decide(100 + 86399)
}

// TestBlockIsNotStarted denies by what starts no block: a shadow, a peek, a cost above the
// capacity. The values in Redis stay as they were.
func TestBlockIsNotStarted(t *testing.T) {
	s := newVirtualStore(t)
	s.set(100)
	c, ctx := blockCounter(t, "none", false), context.Background()
	decide := func(cost int64, change func(*stores.Check)) *stores.ZoneCheck {
		check := storekit.CheckOf(cost, c)
		change(check)
		s.v.tick()
		s.Decide(ctx, check)
		return &check.Zones[0]
	}
	same := func(*stores.Check) {}
	decide(3, same)
	for name, z := range map[string]*stores.ZoneCheck{
		"cost":   decide(4, same),
		"peek":   decide(1, func(c *stores.Check) { c.Peek = true }),
		"shadow": decide(1, func(c *stores.Check) { c.Shadows = 1 }),
	} {
		if z.Admits || z.Block.Until != 0 {
			t.Errorf("%s: %+v", name, z.Block)
		}
	}
	if n := s.v.client.DBSize(ctx).Val(); n != 1 {
		t.Errorf("%d keys, want the counts alone", n)
	}
	if z := decide(1, same); !z.Block.Started {
		t.Errorf("a denial: %+v", z.Block)
	}
}

// TestBlocksInCluster decides zones whose keys lie in several slots. Each that denies starts
// its block.
func TestBlocksInCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	s := newClusterStore(t, nodes)
	sp := algorithms.Spec{Limit: 3, Window: storekit.Hour, Cost: 1}
	zone := func(name string, k uint64) stores.ZoneCheck {
		c := kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: sp})
		c.Blocks, c.Blocked = []int64{day}, memory.NewBlocks(100)
		key := stores.Key{Hi: k * 0x9E3779B97F4A7C15, Lo: k}
		return stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key, Tag: key}, Cost: 1}
	}
	zones := []stores.ZoneCheck{zone("first", 1), zone("second", 2)}
	for range 3 {
		if check := decideInCluster(s, zones...); !check.Admitted {
			t.Fatalf("%+v", check)
		}
	}
	check := decideInCluster(s, zones...)
	if a, b := check.Zones[0].Block, check.Zones[1].Block; check.Admitted || !a.Started || a.Span != day || !b.Started || b.Span != day {
		t.Errorf("blocks %+v and %+v, want both to start, whichever slot denies first", a, b)
	}
	check = decideInCluster(s, zones[1], zones[0])
	if a, b := check.Zones[0].Block, check.Zones[1].Block; check.Admitted || a.Until == 0 || a.Started || b.Until == 0 || b.Started {
		t.Errorf("blocks %+v and %+v, want both to be known", a, b)
	}
	for _, n := range nodes {
		n.CheckTTLs()
	}
}

// TestMalformedBlock decides a key whose block is something else. The check fails, and
// nothing is changed.
func TestMalformedBlock(t *testing.T) {
	s := newVirtualStore(t)
	s.Observe(silent{})
	c, ctx := blockCounter(t, "malformed", false), context.Background()
	check := storekit.CheckOf(1, c)
	name := blockOf("diana", &check.Zones[0])
	s.v.client.Set(ctx, name, "of another tenant", 0)
	s.set(100)
	if s.Decide(ctx, check); check.Mode != stores.ModeFallback {
		t.Errorf("mode %v", check.Mode)
	}
	if got := s.v.client.Get(ctx, name).Val(); got != "of another tenant" || s.v.client.DBSize(ctx).Val() != 1 {
		t.Errorf("the value is %q now", got)
	}
}

// TestBlockAndRecall has another rule deny for longer than the block. A denial without a call neither
// puts off a block nor outlasts one.
func TestBlockAndRecall(t *testing.T) {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 1)
	k := stores.Key{Hi: 1, Lo: 2}
	sp := algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1}
	hourly := algorithms.Spec{Limit: 3, Window: storekit.Hour, Cost: 1}
	c := kit.NewTestCounter(t, "recalled", 0, false, nil,
		storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: hourly}, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 4}, Spec: sp})
	c.Blocks, c.Blocked = []int64{0, 200_000}, memory.NewBlocks(10)
	f.drain(0, c, k)
	if z := f.decide(0, c, k, 2).Zones[0]; !z.Block.Started {
		t.Errorf("a check that exceeds the rule that blocks: %+v", z.Block)
	}
	f.v.now += 200_000
	if z := f.decide(0, c, k, 2).Zones[0]; z.Admits || z.Block.Until != 0 || !z.Results[1].Admit {
		t.Errorf("after the block: %+v, %+v", z.Block, z.Results)
	}
}
