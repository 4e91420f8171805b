package memory

import (
	"math"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestSnapshotsKeepDebts creates and changes random snapshots of more keys than there
// is room for. Each snapshot has the content that was last set. A debt is never
// evicted, nor is a snapshot while there is room.
func TestSnapshotsKeepDebts(t *testing.T) {
	r := storekit.Seeded(t)
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 30, Window: storekit.Hour, Cost: 1}})
	for _, most := range []int64{1, 640, 1_000_000} {
		table := NewTable(c.Rules, most)
		n := table.Snapshots()
		type state struct{ owed, word int64 }
		want, owing := make(map[stores.Key]state), int64(0)
		for range 20_000 {
			k := stores.Key{Hi: 1 + r.Uint64N(3000), Lo: 7}
			mix := table.slots.mix(k)
			s := n.shardOf(mix)
			x, was := n.find(s, k, mix), want[k]
			if x == nil && was.owed > 0 {
				t.Fatalf("room for %d: the snapshot of key %d was evicted, with its debt", most, k.Hi)
			}
			if x == nil && was.word != 0 && most == 1_000_000 {
				t.Fatalf("room for %d: the snapshot of key %d was evicted", most, k.Hi)
			}
			if x != nil && (keyIn(x) != k || x.owes() != (was.owed > 0) || x[snapshotWords] != was.word) {
				t.Fatalf("room for %d: key %d: %v, want %v", most, k.Hi, x, was)
			}
			if x = n.make(s, &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k}}, mix, 0); x == nil {
				continue
			}
			if was.owed > 0 {
				owing--
			}
			now := state{r.Int64N(2), 1 + r.Int64()>>1}
			owing += now.owed
			x.setOwed(make([]int64, slotWords), now.owed)
			x[snapshotWords], want[k] = now.word, now
			if known := table.known.Load(); known > most {
				t.Fatalf("room for %d: %d snapshots", most, known)
			}
		}
		if debtors, _ := n.Debtors(make([]stores.Key, 0, len(want)+1), Cursor{}); int64(len(debtors)) != owing {
			t.Errorf("room for %d: %d debts, want %d", most, len(debtors), owing)
		}
	}
}

// TestSizeOfSnapshots has the bytes of a snapshot and of a key's own count.
func TestSizeOfSnapshots(t *testing.T) {
	for _, c := range []struct {
		rule                  storekit.BenchRule
		snapshot, slot, local int64
	}{
		{storekit.BenchGCRA, 80, 64, 48},
		{storekit.BenchFixedWindow, 64, 48, 32},
		{storekit.BenchSlidingWindow, 144, 128, 112},
	} {
		rules := kit.NewBenchCounter(t, "z", 10, c.rule).Rules
		shared, local := NewTable(rules, 10), NewLocalTable(rules, 10)
		if a, b, d := shared.Snapshots().slots.bytes(), shared.slots.bytes(), local.slots.bytes(); a != c.snapshot || b != c.slot || d != c.local {
			t.Errorf("%s: a snapshot of %d bytes, a slot of %d, locally %d; want %d, %d, %d", c.rule.Alg.Kind(), a, b, d, c.snapshot, c.slot, c.local)
		}
		if local.Snapshots() != nil {
			t.Errorf("%s: a table of this process alone has snapshots", c.rule.Alg.Kind())
		}
	}
}

// TestIndexOfHugeTable inserts a few keys, and their snapshots, into a table of the
// largest size: the indexes are sized for the keys that are there.
func TestIndexOfHugeTable(t *testing.T) {
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 30, Window: storekit.Hour, Cost: 1}})
	table := NewTable(c.Rules, math.MaxInt64)
	n, shards := table.Snapshots(), uint64(len(table.shards))
	for i, keys := uint64(0), 0; keys < 40; i++ {
		k := stores.Key{Hi: i + 1, Lo: 7}
		mix := table.slots.mix(k)
		if mix%shards != 0 {
			continue // all in the first shard
		}
		keys++
		n.make(n.shardOf(mix), &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k}}, mix, 0)
		table.insert(&table.shards[0], &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k}, Enforced: stores.Enforced{Rules: c.Rules}}, mix, 0)
	}
	if a, b := len(n.shard[0].index.entries), len(table.shards[0].index.entries); a > 80 || b > 80 {
		t.Errorf("the indexes of 40 keys have %d and %d entries", a, b)
	}
}
