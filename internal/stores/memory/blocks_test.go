package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// blockingCounter returns a counter of 2 per hour that blocks for three hours, in a table of
// that many keys with room for that many blocks.
func blockingCounter(t *testing.T, keys, blocks int64) (*Blocks, *stores.Counter) {
	t.Helper()
	sp := algorithms.Spec{Limit: 2, Window: storekit.Hour, Cost: 1}
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp})
	b := NewBlocks(blocks)
	c.Table, c.Blocks, c.Blocked = NewTable(c.Rules, keys), []int64{3 * storekit.Hour}, b
	return b, c
}

// TestSharedCounterBlocksNoKey fills a table. Keys that share a counter are denied, and not
// blocked.
func TestSharedCounterBlocksNoKey(t *testing.T) {
	now := int64(storekit.Hour)
	s := &Store{Clock: func() int64 { return now }}
	b, c := blockingCounter(t, 1, 100)
	decide := func(k uint64) *stores.ZoneCheck {
		check := storekit.CheckOfKey(c, k)
		s.Decide(context.Background(), check)
		return &check.Zones[0]
	}
	decide(7)
	decide(7)
	for decide(14).Admits { // in the same group as 21
	}
	for _, k := range []uint64{14, 21} {
		if z := decide(k); z.Admits || z.Block.Until != 0 || z.Results[0].Retry > storekit.Hour {
			t.Errorf("key %d of a shared counter: %+v, %+v", k, z.Block, z.Results[0])
		}
	}
	if z := decide(7); !z.Block.Started || b.Count(now) != 1 {
		t.Errorf("the key with a counter of its own: %+v, %d blocks", z.Block, b.Count(now))
	}
}

// TestBlocksAreBounded blocks more keys than there is room for. The others are denied as by a
// rule that does not block, and blocks that have ended make room.
func TestBlocksAreBounded(t *testing.T) {
	now := int64(storekit.Hour)
	s := &Store{Clock: func() int64 { return now }}
	b, c := blockingCounter(t, 10_000, 50)
	attack := func(from, to uint64) (started int) {
		for k := from; k < to; k++ {
			for range 3 {
				check := storekit.CheckOfKey(c, k)
				s.Decide(context.Background(), check)
				if z := &check.Zones[0]; z.Block.Started {
					started++
				} else if !z.Admits && (!z.Unblocked || z.Results[0].Retry > storekit.Hour) {
					t.Fatalf("key %d without room: %+v, unblocked %v", k, z.Results[0], z.Unblocked)
				}
			}
		}
		return started
	}
	if n := attack(1, 1000); n != 50 || b.Count(now) != 50 {
		t.Errorf("%d blocks were started, %d last, want 50", n, b.Count(now))
	}
	now += 3 * storekit.Hour
	if n := attack(2000, 4000); n != 50 || b.Count(now) != 50 {
		t.Errorf("later %d blocks were started, %d last, want 50", n, b.Count(now))
	}
	c.Reset(storekit.CheckOfKey(c, 1).Zones[0].Key)
	if b.SetMax(0); b.Memory() != 0 {
		t.Errorf("no blocks take %d bytes", b.Memory())
	}
}

// TestGrowthGivesRoom has blocks end that make the next ones longer. They do not keep other keys from
// being blocked, and what has room is remembered for a day.
func TestGrowthGivesRoom(t *testing.T) {
	now := int64(storekit.Hour)
	s := &Store{Clock: func() int64 { return now }}
	b, c := blockingCounter(t, 10_000, 50)
	c.Grows = [][]int64{{5 * storekit.Hour}}
	start := func(k uint64) stores.Block {
		for {
			check := storekit.CheckOfKey(c, k)
			if s.Decide(context.Background(), check); !check.Admitted {
				return check.Zones[0].Block
			}
		}
	}
	for k := range uint64(50) {
		start(k + 1)
	}
	now += 3 * storekit.Hour
	if x := start(1); x.Span != 5*storekit.Hour || x.Step != 2 {
		t.Errorf("the second block of a key: %+v", x)
	}
	for k := range uint64(49) {
		if x := start(k + 1000); !x.Started || x.Span != 3*storekit.Hour {
			t.Fatalf("key %d: %+v, with room for those that have not ended", k, x)
		}
	}
	if n := b.Count(now); n != 50 {
		t.Errorf("%d blocks, want 50", n)
	}
	now += 5*storekit.Hour + stores.GrowsWithin + 1
	if x := start(1); x.Span != 3*storekit.Hour || x.Step != 1 {
		t.Errorf("a day after its end: %+v", x)
	}
}

// TestBlockedDecisionAllocatesNothing decides in a zone that blocks, and keys that are
// blocked.
func TestBlockedDecisionAllocatesNothing(t *testing.T) {
	now := int64(storekit.Hour)
	s := &Store{Clock: func() int64 { now++; return now }}
	_, c := blockingCounter(t, 100, 100)
	check := storekit.CheckOfKey(c, 1)
	for range 3 {
		s.Decide(context.Background(), check)
	}
	if !check.Zones[0].Block.Started {
		t.Fatalf("%+v", check.Zones[0].Block)
	}
	if n := testing.AllocsPerRun(100, func() { s.Decide(context.Background(), check) }); n != 0 || !check.Zones[0].Blocked() {
		t.Errorf("%v allocations of a blocked key, %+v", n, check.Zones[0].Block)
	}
}

// TestBlockAfterClockStep sets the clock back. The block lasts as long as it did in total.
func TestBlockAfterClockStep(t *testing.T) {
	b, k := NewBlocks(10), storekit.CheckOfKey(nil, 1).Zones[0].Key
	b.Set(k, KnownBlock{Until: 1100, Span: 100}, 1000)
	for _, now := range []int64{1000, 400, 399} {
		if x, ok := b.Find(k, now); !ok || x.Until != now+100 {
			t.Errorf("at %d: %+v", now, x)
		}
	}
}

// TestEndedBlocksByTheirOwnClock sets a block after the clock of the store was set ahead. One of the
// same shard from before lasts on.
func TestEndedBlocksByTheirOwnClock(t *testing.T) {
	b := NewBlocks(10)
	b.Set(stores.Key{Hi: 1, Lo: 1}, KnownBlock{Until: 1100, Span: 100}, 1000)
	b.Set(stores.Key{Hi: 2, Lo: 1 + blockShards}, KnownBlock{Until: 2100, Span: 100, Offset: 1000}, 2000)
	if n := b.Count(1000); n != 2 {
		t.Errorf("%d blocks, want 2", n)
	}
}
