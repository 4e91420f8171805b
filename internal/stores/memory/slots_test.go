package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// TestZonesOfOneShard charges two keys of one shard in one check and in separate
// checks: the lookup of one is not reused for the other.
func TestZonesOfOneShard(t *testing.T) {
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	for name, rule := range map[string]algorithms.Algorithm{
		"gcra": &algorithms.GCRA{}, "fixed_window": &algorithms.FixedWindow{}, "sliding_log": &algorithms.SlidingLog{},
	} {
		t.Run(name, func(t *testing.T) {
			c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: rule, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}})
			c.Table = NewTable(c.Rules, 100)
			left := []int64{100, 100}
			for range 10 {
				check := storekit.CheckOfKey(c, 1)
				check.Zones = append(check.Zones, storekit.CheckOfKey(c, 2).Zones[0])
				for i, cost := range []int64{2, 3} {
					check.Zones[i].Cost = cost
					left[i] -= cost
				}
				local.Decide(context.Background(), check)
				single := storekit.CheckOfKey(c, 2)
				local.Decide(context.Background(), single)
				left[1]--
				for i, got := range []int64{check.Zones[0].Results[0].Remaining, single.Zones[0].Results[0].Remaining} {
					if got != left[i] {
						t.Fatalf("key %d: remaining %d, want %d", i+1, got, left[i])
					}
				}
			}
		})
	}
}

// TestSlotsDoNotOverlap checks that no two slots share memory, and that the chunks
// have no gaps.
func TestSlotsDoNotOverlap(t *testing.T) {
	for _, stride := range []int{2, 4, 14, 1009, 200_000} {
		var m slots
		m.init(stride, [2]uint64{})
		chunk, at := -1, uint32(0)
		for n := range uint32(300_000) {
			c, i := m.where(n)
			if c == chunk && i == at+1 || c == chunk+1 && i == 0 {
				chunk, at = c, i
				continue
			}
			t.Fatalf("stride %d: slot %d in chunk %d at %d, after chunk %d at %d", stride, n, c, i, chunk, at)
		}
	}
	var m slots
	m.init(4, [2]uint64{})
	for page := range uint32(3000) {
		if got := m.page(); got != page {
			t.Fatalf("page %d, want %d", got, page)
		}
		for i := range uint32(pageSlots) {
			slot := m.at(page*pageSlots + i)
			if slot[0] != 0 {
				t.Fatalf("slot %d of page %d was allocated before", i, page)
			}
			slot[0] = 1
		}
	}
}
