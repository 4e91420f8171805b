package memory

import (
	"fmt"
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

// TestDebtsOfALogAreBounded charges logs after twenty responses, each for the whole limit.
func TestDebtsOfALogAreBounded(t *testing.T) {
	for limit, most := range map[int64]int{1: 128, 100: 256, 129: 512, 1 << 20: 1 << 21} { // the highest
		t.Run(fmt.Sprint(limit), func(t *testing.T) { testDebtsOfALog(t, limit, most) })
	}
}

func testDebtsOfALog(t *testing.T, limit int64, most int) {
	rule, err := new(algorithms.SlidingLog).Compile(algorithms.Spec{Limit: limit, Window: storestest.Hour, Cost: 1, Debt: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &stores.Counter{Rules: []algorithms.Rule{rule}}
	c.Table = NewTable(c.Rules, 1)
	now := int64(1_700_000_000_000_000)
	l := &Store{Clock: func() int64 { return now }}
	check := storestest.CheckOfKey(c, 1)
	l.Decide(t.Context(), check)
	for range 20 {
		l.Finish(t.Context(), &check.Zones[0], limit)
	}
	Update(&check.Zones[0], now, func(int) int64 { return 0 }, func(_ int, s algorithms.State) {
		if n := len(s) - 1; n > most {
			t.Errorf("%d timestamps, want %d", n, most)
		}
	})
	for _, after := range []int64{1, storestest.Hour} {
		check := storestest.CheckOfKey(c, 1)
		now = 1_700_000_000_000_000 + after
		if l.Decide(t.Context(), check); check.Admitted != (after == storestest.Hour) {
			t.Errorf("%d µs after the debts: admitted %v", after, check.Admitted)
		}
	}
}
