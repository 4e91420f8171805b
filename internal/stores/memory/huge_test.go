package memory

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
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
			check := stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: storekit.Scramble(i), Lo: storekit.Scramble(^i)}}, Cost: 1}}}
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

// TestLargestLog charges a log of the highest limit after three responses, each for the whole limit.
func TestLargestLog(t *testing.T) {
	const limit = 1 << 20
	rule, err := new(algorithms.SlidingLog).Compile(algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1, Overdraws: true})
	if err != nil {
		t.Fatal(err)
	}
	c := &stores.Counter{Rules: []algorithms.Rule{rule}}
	c.Table = NewTable(c.Rules, 1)
	now := int64(1_700_000_000_000_000)
	l := &Store{Clock: func() int64 { return now }}
	var checks [3]*stores.Check
	for i := range checks {
		checks[i] = storekit.CheckOfKey(c, 1)
		l.Decide(t.Context(), checks[i])
	}
	for _, check := range checks {
		l.Finish(t.Context(), &check.Zones[0], limit)
	}
	for _, after := range []int64{1, storekit.Hour} {
		check := storekit.CheckOfKey(c, 1)
		now = 1_700_000_000_000_000 + after
		if l.Decide(t.Context(), check); check.Admitted != (after == storekit.Hour) {
			t.Errorf("%d µs after the debts: admitted %v", after, check.Admitted)
		}
	}
}
