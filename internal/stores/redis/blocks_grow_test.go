package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

const minute = 60_000_000

// growFleet is instances of a zone whose blocks last a minute, ten minutes and an hour.
func growFleet(t *testing.T, zone string, n int) (*fleet, []*stores.Counter, stores.Key) {
	t.Helper()
	f := newFleet(t, redistest.Start(t), n)
	c := make([]*stores.Counter, n)
	for i := range c {
		c[i] = blockCounter(t, zone, false)
		c[i].Blocks, c[i].Grows = []int64{minute}, [][]int64{{10 * minute, storekit.Hour}}
		storekit.Adopt(t, f.all[i], c[i])
	}
	return f, c, stores.Key{Hi: 1, Lo: 2}
}

// blocks has an instance block a key, and fails the test unless the block lasts for a time and ends
// exactly then, also at another instance. The key is not blocked any more afterwards.
func (f *fleet) blocks(t *testing.T, what string, by, other int, c []*stores.Counter, k stores.Key, span int64) {
	t.Helper()
	f.drain(by, c[by], k)
	since := f.v.now
	f.v.now += span - 1
	if z := f.decide(other, c[other], k, 1).Zones[0]; z.Admits || z.Block.Until != since+span || z.Block.Span != span {
		t.Fatalf("%s: %+v, want a block of %d from %d on", what, z.Block, span, since)
	}
	f.v.now++
	if z := f.decide(other, c[other], k, 1).Zones[0]; z.Block.Until != 0 {
		t.Fatalf("%s: %+v after its end", what, z.Block)
	}
}

// TestBlocksGrow blocks a key at one instance and then at another. The next block is longer within a
// day of the end of the last one, to the microsecond, and the last one stays.
func TestBlocksGrow(t *testing.T) {
	f, c, k := growFleet(t, "grow", 2)
	for i, span := range []int64{minute, 10 * minute, storekit.Hour, storekit.Hour} {
		f.blocks(t, "grows", i%2, (i+1)%2, c, k, span)
		f.v.now += stores.GrowsWithin
	}
	name := blockOf("diana", &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}})
	f.drain(0, c[0], k)
	ttl := f.v.client.PTTL(context.Background(), name).Val().Microseconds()
	if want := int64(storekit.Hour + stores.GrowsWithin); ttl < want-minute || ttl > want+2_000_000 {
		t.Errorf("the block lives for %d us, want an hour and a day", ttl)
	}
	f.v.now += storekit.Hour + stores.GrowsWithin + 1
	f.blocks(t, "a day later", 0, 1, c, k, minute)
	f.blocks(t, "soon again", 1, 0, c, k, 10*minute)
}

// TestBlocksGrowBySeveralRules has two rules block a key: what grows is the key's, whichever rule
// blocks.
func TestBlocksGrowBySeveralRules(t *testing.T) {
	f, c, k := growFleet(t, "several", 2)
	f.blocks(t, "first", 0, 1, c, k, minute)
	for _, rule := range []struct {
		blocks int64
		grows  [][]int64
		want   int64
	}{
		{3 * minute, [][]int64{{7 * minute, 9 * minute}}, 7 * minute},
		{3 * minute, nil, 3 * minute}, // and nothing is remembered
		{minute, [][]int64{{5 * minute}}, minute},
	} {
		for i := range c {
			c[i] = blockCounter(t, "several", false)
			c[i].Blocks, c[i].Grows, c[i].Blocked = []int64{rule.blocks}, rule.grows, memory.NewBlocks(10)
		}
		f.blocks(t, "other rules", 0, 1, c, k, rule.want)
	}
}

// TestResetEndsGrowth resets a key: its next block is the first again. An instance that has not heard
// of the reset puts nothing back.
func TestResetEndsGrowth(t *testing.T) {
	f, c, k := growFleet(t, "reset", 2)
	f.blocks(t, "first", 0, 1, c, k, minute)
	f.blocks(t, "second", 1, 0, c, k, 10*minute)
	if err := f.all[0].Reset(context.Background(), "reset", c[:1], k); err != nil {
		t.Fatal(err)
	}
	mark := blockOf("diana", &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}}) + resetSuffix
	if ttl := f.v.client.PTTL(context.Background(), mark).Val().Microseconds(); ttl < storekit.Hour+stores.GrowsWithin {
		t.Errorf("the block is marked as reset for %d us, want an hour and a day", ttl)
	}
	f.v.now += 2_000_000
	f.sweep(1)
	f.blocks(t, "after the reset", 1, 0, c, k, minute)
}

// TestLostGrowthIsPutBack makes Redis forget how long the next block of a key is. An instance that
// knows puts it back: with the check that finds the key lost, and in the background.
func TestLostGrowthIsPutBack(t *testing.T) {
	f, c, k := growFleet(t, "lost", 3)
	f.blocks(t, "first", 0, 1, c, k, minute)
	f.v.flush(t)
	f.blocks(t, "forgotten", 1, 0, c, k, 10*minute)
	f.v.now += 10 * minute // its counts are as if unused
	f.v.flush(t)
	f.sweep(1)
	f.blocks(t, "swept", 2, 0, c, k, storekit.Hour)
}

// sweep has an instance put back all that it knows.
func (f *fleet) sweep(i int) {
	f.all[i].loseKey()
	for range 10 {
		f.all[i].setTime(f.v.now)
		f.all[i].payDebts(context.Background())
	}
}
