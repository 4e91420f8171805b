package memory

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestLargestChunks lets a table grow past its first chunks of the full size,
// which should lie in huge pages, and finds all of its keys again.
func TestLargestChunks(t *testing.T) {
	const keys = 200_000
	rule, err := new(algorithms.GCRA).Compile(algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &stores.Counter{Rules: []algorithms.Rule{rule}}
	c.Table = NewTable(c.Rules, false, keys)
	l := &Store{Clock: func() int64 { return 1_700_000_000_000_000 }}
	for _, want := range []int64{9, 8} {
		for i := range uint64(keys) {
			check := stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Key: stores.Key{Hi: storestest.Scramble(i), Lo: storestest.Scramble(^i)}, Cost: 1}}}
			l.Decide(t.Context(), &check)
			if got := check.Zones[0].Results[0].Remaining; !check.Admitted || got != want {
				t.Fatalf("key %d: admitted %v, %d left, want %d", i, check.Admitted, got, want)
			}
		}
	}
	if full := len(*TableOf(c).slots.chunks.Load()); TableOf(c).Keys() != keys || full < 10 {
		t.Errorf("%d keys in %d chunks", TableOf(c).Keys(), full)
	}
}

// TestBrief leaves out Remaining and Reset where they are not read, and decides
// the same.
func TestBrief(t *testing.T) {
	rule, err := new(algorithms.GCRA).Compile(algorithms.Spec{Limit: 2, Window: 1_000_000, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &stores.Counter{Rules: []algorithms.Rule{rule}}
	c.Table = NewTable(c.Rules, false, 10)
	l := &Store{Clock: func() int64 { return 1_700_000_000_000_000 }}
	check := stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Key: stores.Key{Hi: 1, Lo: 2}, Cost: 1}}}
	for i, want := range []struct {
		brief, admit bool
		left, retry  int64
	}{{false, true, 1, 0}, {true, true, 0, 0}, {true, false, 0, 500_000}, {false, false, 0, 500_000}} {
		check.Brief = want.brief
		l.Decide(t.Context(), &check)
		r := check.Zones[0].Results[0]
		if check.Admitted != want.admit || r.Remaining != want.left || r.Retry != want.retry || (r.Reset == 0) != want.brief {
			t.Errorf("decision %d: admitted %v, %+v, want %+v", i, check.Admitted, r, want)
		}
	}
}
