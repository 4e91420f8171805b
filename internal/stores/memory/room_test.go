package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// roomCounter returns a counter of 100 an hour in a table that was made for made keys and may have
// most.
func roomCounter(t *testing.T, made, most int64) (*stores.Counter, *Snapshots) {
	t.Helper()
	sp := algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: new(algorithms.GCRA), Spec: sp})
	table := NewTable(c.Rules, made)
	table.SetMax(most, 0)
	c.Table = table
	return c, table.Snapshots()
}

// learnLevel learns that a key has a level, in microseconds.
func (n *Snapshots) learnLevel(c *stores.Counter, k uint64, level int64) *stores.ZoneCheck {
	z := &storekit.CheckOfKey(c, k).Zones[0]
	z.Rules, z.Results = c.Rules, make([]stores.Result, 1)
	z.Results[0].State = algorithms.State{storekit.Hour + level, 0, 100, 100}
	n.Learn(z, Instant{Local: storekit.Hour, Shared: storekit.Hour}, false, func() {})
	return z
}

// owe has a key owe something, and reports whether there is room for that, and whether it owed nothing
// before.
func owe(n *Snapshots, z *stores.ZoneCheck, now Instant) (room, starts bool) {
	if !n.Warm(z, now) {
		return false, false
	}
	noted := n.Owe(z, 1, now.Shared, now.Local)
	return noted != NotedNoRoom, noted == NotedFirst
}

// TestSnapshotsOfMaxKeys learns the states of as many keys as there may be, and has them owe. Each
// has its snapshot and its debt, however they are distributed.
func TestSnapshotsOfMaxKeys(t *testing.T) {
	now := Instant{Local: storekit.Hour, Shared: storekit.Hour}
	for _, most := range []uint64{1, 2, 7, 50, 100, 1000, 2047, 2048, 5000, 70_000} {
		c, n := roomCounter(t, int64(most), int64(most))
		for k := range most {
			n.learnLevel(c, k, 60_000_000)
		}
		unknown, debtless := 0, 0
		for k := range most {
			z := &storekit.CheckOfKey(c, k).Zones[0]
			z.Rules = c.Rules
			if known, _, _ := n.Look(z, now.Local); !known {
				unknown++
			}
			if room, starts := owe(n, z, now); !room || !starts {
				debtless++
			}
		}
		if unknown > 0 || debtless > 0 {
			t.Errorf("max_keys %d: of as many keys %d have no snapshot, and %d no debt", most, unknown, debtless)
		}
		if z := n.learnLevel(c, most, 60_000_000); most < 100 {
			if room, _ := owe(n, z, now); room {
				t.Errorf("max_keys %d: there is room for the debt of another key", most)
			}
		}
	}
}

// TestSpentSnapshotsMakeRoom learns states of ever more keys, of which half as many as there may be
// still count. None of these is forgotten for another that does not, whether the table was made for
// so many keys, for fewer, or for a million.
func TestSpentSnapshotsMakeRoom(t *testing.T) {
	for _, made := range []int64{10, 100, 1_000_000} {
		c, n := roomCounter(t, made, 100)
		for k := range uint64(3000) {
			level := int64(-1)
			if k%60 == 0 {
				level = 60_000_000
			}
			n.learnLevel(c, k, level)
		}
		for k := uint64(0); k < 3000; k += 60 {
			if known, _, _ := n.Look(&storekit.CheckOfKey(c, k).Zones[0], storekit.Hour); !known {
				t.Errorf("made for %d: the snapshot of key %d is gone", made, k)
			}
		}
		if n := TableOf(c).Keys(); n > 100 {
			t.Errorf("made for %d: %d snapshots, want at most 100", made, n)
		}
	}
}

// TestLoweredMaxKeys counts in a table that was made for a million keys and may have a hundred.
// Unused keys make room for others, in whichever shard they are.
func TestLoweredMaxKeys(t *testing.T) {
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	c, _ := roomCounter(t, 1_000_000, 100)
	for k := range uint64(3000) {
		now += storekit.Hour / 50 // a key is unused after a hundredth
		check := storekit.CheckOfKey(c, k)
		if local.Decide(context.Background(), check); check.Zones[0].Overflowed {
			t.Fatalf("key %d used a shared counter", k)
		}
	}
	if n := TableOf(c).Keys(); n > 100 {
		t.Errorf("%d keys, want at most 100", n)
	}
}

// TestFewBlocks has room for a few blocks, of which one lasts on. Those that have ended make room,
// in whichever shard they are.
func TestFewBlocks(t *testing.T) {
	for _, most := range []int64{2, 8, 50} {
		b := NewBlocks(most)
		for k := range uint64(1000) {
			now, span := int64(1000*k), int64(100)
			if k == 0 {
				span = storekit.Hour
			}
			key := storekit.CheckOfKey(nil, k).Zones[0].Key
			if !b.Set(key, KnownBlock{Until: now + span, Span: span}, now) {
				t.Fatalf("room for %d: no room for block %d beside one", most, k)
			}
		}
		if n := b.Count(1_000_000); n != 1 {
			t.Errorf("room for %d: %d blocks last, want 1", most, n)
		}
	}
}
