package memory

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestTableEqualsMap inserts and removes random keys and compares the table with a
// map. The index is correct after every removal and growth.
func TestTableEqualsMap(t *testing.T) {
	r := storekit.Seeded(t)
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 30, Window: storekit.Hour, Cost: 1}})
	table := NewTable(c.Rules, 1_000_000)
	want := make(map[uint64]int64)
	for range 20_000 {
		k := 1 + r.Uint64N(3000)
		key := stores.Key{Hi: k, Lo: k*31 + 1} // a slot of zeros is empty
		mix := table.slots.mix(key)
		s := &table.shards[mix&uint64(len(table.shards)-1)]
		slot := table.find(s, key, mix)
		n, in := want[k]
		if in != (slot != nil) {
			t.Fatalf("key %d: in the table %v, want %v", k, slot != nil, in)
		}
		switch {
		case !in:
			slot = table.insert(s, &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key}, Enforced: stores.Enforced{Rules: c.Rules}}, mix, 0)
			fallthrough
		case r.IntN(3) > 0:
			s.states.room(&table.layout, slot, 0, c.Rules[0], 1, 1)
			c.Rules[0].Charge(s.states.at(&table.layout, slot, 0), 1, 1, 0)
			want[k]++
		default:
			if got := s.states.at(&table.layout, slot, 0)[0]; got != n {
				t.Fatalf("key %d: count %d, want %d", k, got, n)
			}
			for i := range s.next {
				if n := s.pages.nth(i); keyIn(table.slots.at(n)) == key {
					table.remove(s, n)
				}
			}
			delete(want, k)
		}
		if table.Keys() != int64(len(want)) {
			t.Fatalf("%d keys, want %d", table.Keys(), len(want))
		}
	}
}

// TestKeyMovesToSharedCounter checks that a key whose window has ended, and whose slot
// another key got, does not meet the end of a shared counter's window as well: that
// would be a third window within the length of one.
func TestKeyMovesToSharedCounter(t *testing.T) {
	t.Run("charged by the request", func(t *testing.T) { moveToSharedCounter(t, false) })
	t.Run("charged by the response", func(t *testing.T) { moveToSharedCounter(t, true) })
}

func moveToSharedCounter(t *testing.T, byResponse bool) {
	const limit, window = 3, 1_000_000
	now := int64(storekit.Hour)
	start := now
	local := &Store{Clock: func() int64 { return now }}
	c := kit.NewTestCounter(t, "z", 0, byResponse, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: limit, Window: window, Cost: 1, Overdraws: byResponse}})
	c.Table = NewTable(c.Rules, 1)
	admitted := 0 // of key 1, after 0.9 windows
	shared := false
	for _, step := range []struct {
		at    int64 // in hundredths of a window
		key   uint64
		times int
	}{{0, 1, 1}, {50, 2, 1}, {99, 1, 5}, {100, 3, 1}, {110, 1, 5}, {150, 1, 5}, {189, 1, 5}} {
		now = start + step.at*window/100
		for range step.times {
			check := storekit.CheckOfKey(c, step.key)
			check.Zones[0].Group = 7
			local.Decide(context.Background(), check)
			if check.Admitted && step.key == 1 && step.at >= 90 {
				admitted++
			}
			if check.Admitted && byResponse {
				local.Finish(context.Background(), &check.Zones[0], 1)
			}
			shared = shared || check.Admitted && check.Zones[0].Overflowed
		}
	}
	if admitted > 2*limit {
		t.Errorf("%d admitted within a window, bound %d", admitted, 2*limit)
	}
	if !shared {
		t.Error("no key used a shared counter")
	}
}

// TestFullTableKeepsBound floods a small table with more keys than it has slots. No
// key is admitted more often than its rules allow, though it moves between slots and
// shared counters, and no key in debt is evicted.
func TestFullTableKeepsBound(t *testing.T) {
	t.Run("7 networks", func(t *testing.T) { floodSmallTable(t, 200, 7) })
	t.Run("more networks than counters", func(t *testing.T) { floodSmallTable(t, 1200, 600) })
}

// floodSmallTable checks keys of several networks, with pauses, so that shared
// counters become unused and are assigned to other networks.
func floodSmallTable(t *testing.T, keys, networks uint64) {
	for name, alg := range map[string]algorithms.Algorithm{
		"sliding_log": &algorithms.SlidingLog{}, "gcra": &algorithms.GCRA{}, "fixed_window": &algorithms.FixedWindow{},
		"sliding_window": &algorithms.SlidingWindow{},
	} {
		t.Run(name, func(t *testing.T) {
			r := storekit.Seeded(t)
			now := int64(storekit.Hour)
			local := &Store{Clock: func() int64 { return now }}
			const limit, window = 3, 1_000_000
			c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: alg, Spec: algorithms.Spec{Limit: limit, Window: window, Cost: 1}})
			c.Table = NewTable(c.Rules, 50)
			bound := map[string]int{"gcra": 2 * limit, "fixed_window": 2 * limit}[name]
			if bound == 0 {
				bound = limit
			}
			admitted, shared := make(map[uint64][]int64), false
			for range 60_000 {
				if now += r.Int64N(600_000 / int64(keys)); r.IntN(1000) == 0 {
					now += r.Int64N(window)
				}
				k := r.Uint64N(keys)
				if r.IntN(3) > 0 {
					k %= 40 // some are checked often
				}
				check := storekit.CheckOfKey(c, k)
				check.Zones[0].Group = uint32(k % networks)
				local.Decide(context.Background(), check)
				if !check.Admitted {
					continue
				}
				shared = shared || check.Zones[0].Overflowed
				times := slices.Concat(admitted[k], []int64{now})
				for times[0] <= now-window {
					times = times[1:]
				}
				admitted[k] = times
				if len(times) > bound {
					t.Fatalf("key %d was admitted %d times within a window, bound %d", k, len(times), bound)
				}
			}
			if !shared {
				t.Error("no key used a shared counter: the table was not full")
			}
			if n := TableOf(c).Keys(); n > 50 {
				t.Errorf("%d keys in a table of 50", n)
			}
		})
	}
}

// TestFloodOfAnotherNetwork floods a table from one network. A client of another
// network is admitted, and no key in debt is evicted.
func TestFloodOfAnotherNetwork(t *testing.T) {
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 2, Window: storekit.Hour, Cost: 1}})
	c.Table = NewTable(c.Rules, 100)
	decide := func(k uint64, group uint32) bool {
		check := storekit.CheckOfKey(c, k)
		check.Zones[0].Group = group
		local.Decide(context.Background(), check)
		return check.Admitted
	}
	decide(1, 1)
	decide(1, 1)
	for k := range uint64(5000) {
		now++
		decide(1000+k, 2)
	}
	if decide(1, 1) {
		t.Error("a key in debt was evicted")
	}
	if !decide(2, 3) {
		t.Error("a client of another network was denied because of the flood")
	}
	if decide(3, 2) {
		t.Error("a new key of the flooding network was admitted though its shared counter is used up")
	}
}

// TestIdleTablesAreSmall checks that the tables of unused zones take little memory.
func TestIdleTablesAreSmall(t *testing.T) {
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 30, Window: storekit.Hour, Cost: 1}})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	all := make([]*Table, 100)
	for i := range all {
		all[i] = NewTable(c.Rules, 1_000_000)
	}
	took := (heap() - before) / int64(len(all))
	t.Logf("an idle table takes %d bytes", took)
	if took > 128<<10 {
		t.Errorf("an idle table takes %d bytes, want at most 128 KiB", took)
	}
	runtime.KeepAlive(all)
}

// TestTableEvictsUnusedKeys checks that the slots of keys in their initial state are
// reused.
func TestTableEvictsUnusedKeys(t *testing.T) {
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 2, Window: 1000, Cost: 1}})
	c.Table = NewTable(c.Rules, 64)
	for k := range uint64(10_000) {
		now += 1000
		if check := storekit.CheckOfKey(c, k); true {
			if local.Decide(context.Background(), check); !check.Admitted || check.Zones[0].Overflowed {
				t.Fatalf("key %d was denied, or used a shared counter: unused keys can be evicted", k)
			}
		}
	}
}

// TestFullTableAfterAClockStep looks for room in a full table, whose keys were charged by a clock that
// was then set back: they are in use, and no state is read beyond its end.
func TestFullTableAfterAClockStep(t *testing.T) {
	for name, alg := range map[string]algorithms.Algorithm{
		"sliding_log": &algorithms.SlidingLog{}, "gcra": &algorithms.GCRA{}, "fixed_window": &algorithms.FixedWindow{},
		"sliding_window": &algorithms.SlidingWindow{}, "token_bucket": &algorithms.TokenBucket{},
	} {
		t.Run(name, func(t *testing.T) {
			const limit, step = 3, 400 * 1_000_000
			now := int64(storekit.Hour)
			local := &Store{Clock: func() int64 { return now }}
			c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: alg, Spec: algorithms.Spec{Limit: limit, Window: 1_000_000, Cost: 1}})
			c.Table = NewTable(c.Rules, 8)
			for k := range uint64(8) {
				local.Decide(context.Background(), storekit.CheckOfKey(c, k))
			}
			now -= step
			shared := false
			for k := range uint64(40) {
				check := storekit.CheckOfKey(c, 100+k)
				local.Decide(context.Background(), check)
				shared = shared || check.Admitted && check.Zones[0].Overflowed
			}
			if !shared {
				t.Error("keys in use were evicted")
			}
		})
	}
}

// TestPermitsInAFullTable acquires permits of more keys than the table has slots. They
// are counted for each key on its own, and nothing remains after their release.
func TestPermitsInAFullTable(t *testing.T) {
	r := storekit.Seeded(t)
	now := int64(storekit.Hour)
	local := &Store{Clock: func() int64 { return now }}
	c := kit.NewTestCounter(t, "z", 2, true, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 5, Window: 1_000_000, Cost: 1}})
	c.Table = NewTable(c.Rules, 10)
	inFlight := make(map[uint64]int)
	var open []*stores.Check
	for range 20_000 {
		now += r.Int64N(50_000)
		if len(open) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(open))
			z := &open[i].Zones[0]
			local.Finish(context.Background(), z, r.Int64N(2))
			inFlight[z.Key.Hi]--
			open = append(open[:i], open[i+1:]...)
			continue
		}
		k := r.Uint64N(40)
		check := storekit.CheckOfKey(c, k)
		if local.Decide(context.Background(), check); check.Admitted {
			if inFlight[k]++; inFlight[k] > 2 {
				t.Fatalf("key %d has %d requests in flight, want at most 2", k, inFlight[k])
			}
			open = append(open, check)
		}
	}
	for _, check := range open {
		local.Finish(context.Background(), &check.Zones[0], 0)
	}
	for i := range local.Permits.shards {
		if held := &local.Permits.shards[i]; len(held.held)+len(held.others) != 0 {
			t.Errorf("%v and %v are held after all permits were released", held.held, held.others)
		}
	}
	if n := TableOf(c).held.Load(); n != 0 {
		t.Errorf("a cost of %d is held after all permits were released", n)
	}
}

// TestConcurrentChecks has many goroutines check several zones at once. Each zone's
// limit is enforced, and the order of locking prevents deadlocks.
func TestConcurrentChecks(t *testing.T) {
	local := &Store{Clock: func() int64 { return storekit.Hour }}
	var counters []*stores.Counter
	for i, limit := range []int64{50, 70, 90} {
		counters = append(counters, kit.NewTestCounter(t, string(rune('a'+i)), 0, false, nil,
			storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1}}))
	}
	var admitted [3]atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 7))
			for range 500 {
				var check stores.Check
				in := r.Perm(3)[:1+r.IntN(3)]
				for _, z := range in {
					check.Zones = append(check.Zones, stores.ZoneCheck{Counter: counters[z], Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 1}}, Cost: 1})
				}
				local.Decide(context.Background(), &check)
				if check.Admitted {
					for _, z := range in {
						admitted[z].Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	for z, c := range counters {
		if n := admitted[z].Load(); n > c.Rules[0].Limit() {
			t.Errorf("zone %d: %d admitted, limit %d", z, n, c.Rules[0].Limit())
		}
	}
	if admitted[0].Load() != 50 {
		t.Errorf("zone 0: %d admitted, want the whole limit of 50", admitted[0].Load())
	}
}
