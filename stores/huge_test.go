package stores

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
)

// TestLargestChunks lets a table grow past its first chunks of full size, which
// are asked to lie in huge pages, and finds all of its keys again.
func TestLargestChunks(t *testing.T) {
	const keys = 200_000
	rule, err := new(algorithms.GCRA).Compile(algorithms.Spec{Limit: 10, Window: 1_000_000, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &Counter{Rules: []algorithms.Rule{rule}}
	c.Table = NewTable(c.Rules, false, keys)
	l := &Local{Clock: func() int64 { return 1_700_000_000_000_000 }}
	for _, want := range []int64{9, 8} {
		for i := range uint64(keys) {
			a := Ask{Items: []Item{{Counter: c, Key: Key{scramble(i), scramble(^i)}, Cost: 1}}}
			l.Decide(t.Context(), &a)
			if got := a.Items[0].Results[0].Remaining; !a.Admitted || got != want {
				t.Fatalf("key %d: admitted %v, %d left, want %d", i, a.Admitted, got, want)
			}
		}
	}
	if full := len(*tableOf(c).slots.chunks.Load()); tableOf(c).Keys() != keys || full < 10 {
		t.Errorf("%d keys in %d chunks", tableOf(c).Keys(), full)
	}
}

// TestBrief leaves out what nobody reads, and decides the same.
func TestBrief(t *testing.T) {
	rule, err := new(algorithms.GCRA).Compile(algorithms.Spec{Limit: 2, Window: 1_000_000, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &Counter{Rules: []algorithms.Rule{rule}}
	c.Table = NewTable(c.Rules, false, 10)
	l := &Local{Clock: func() int64 { return 1_700_000_000_000_000 }}
	a := Ask{Items: []Item{{Counter: c, Key: Key{1, 2}, Cost: 1}}}
	for i, want := range []struct {
		brief, admit bool
		left, retry  int64
	}{{false, true, 1, 0}, {true, true, 0, 0}, {true, false, 0, 500_000}, {false, false, 0, 500_000}} {
		a.Brief = want.brief
		l.Decide(t.Context(), &a)
		r := a.Items[0].Results[0]
		if a.Admitted != want.admit || r.Remaining != want.left || r.Retry != want.retry || (r.Reset == 0) != want.brief {
			t.Errorf("decision %d: admitted %v, %+v, want %+v", i, a.Admitted, r, want)
		}
	}
}
