package memory

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestLargestChunks grows a table beyond its first chunks of the full size, which
// are placed in huge pages, and finds all of its keys again.
func TestLargestChunks(t *testing.T) {
	const keys = 200_000
	rule, err := new(algorithms.GCRA).Compile(algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &stores.Counter{Rules: []algorithms.Rule{rule}}
	c.Table = NewTable(c.Rules, keys)
	l := &Store{Clock: func() int64 { return 1_700_000_000_000_000 }}
	for _, want := range []int64{9, 8} {
		for i := range uint64(keys) {
			check := stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Key: stores.Key{Hi: storestest.Scramble(i), Lo: storestest.Scramble(^i)}, Cost: 1}}}
			l.Decide(t.Context(), &check)
			if got := check.Zones[0].Results[0].Remaining; !check.Admitted || got != want {
				t.Fatalf("key %d: admitted %v, remaining %d, want %d", i, check.Admitted, got, want)
			}
		}
	}
	if full := len(*TableOf(c).slots.chunks.Load()); TableOf(c).Keys() != keys || full < 10 {
		t.Errorf("%d keys in %d chunks", TableOf(c).Keys(), full)
	}
}
