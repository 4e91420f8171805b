package memory

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/internal/testkit/usage"
	"github.com/dianalimiter/diana/stores"
)

// benchTable is a local store and a check of a counter whose table is full of keys.
type benchTable struct {
	store Store
	check stores.Check
	now   int64
}

func newBenchTable(b *testing.B, keys uint64, rules ...storekit.BenchRule) *benchTable {
	b.Helper()
	t := &benchTable{now: 1_700_000_000_000_000}
	t.store.Clock = func() int64 { t.now++; return t.now }
	c := kit.NewBenchCounter(b, "bench", int64(keys)+int64(keys)/10, rules...)
	c.Table = NewLocalTable(c.Rules, int64(keys)+int64(keys)/10)
	t.check.Zones = []stores.ZoneCheck{{Counter: c, Cost: 1}}
	for i := range keys {
		t.decide(b, i)
	}
	if n := TableOf(c).Keys(); n != int64(keys) {
		b.Fatalf("the table holds %d keys, want %d", n, keys)
	}
	return t
}

func (t *benchTable) decide(b *testing.B, i uint64) {
	t.check.Zones[0].Key = storekit.BenchKey(i)
	t.store.Decide(context.Background(), &t.check)
	if !t.check.Admitted {
		b.Fatal("a request was denied: want none")
	}
}

type tableSize struct {
	name string
	keys uint64
}

// BenchmarkTable measures how a decision, a garbage collection and the growth of a
// shard's index depend on the number of keys. For comparison it does the same
// lookups in a Go map.
func BenchmarkTable(b *testing.B) {
	b.Run("keys=0/gc", benchGC)
	for _, n := range []tableSize{{"10k", 10_000}, {"100k", 100_000}, {"1M", 1_000_000}, {"10M", 10_000_000}} {
		t := newBenchTable(b, n.keys, storekit.BenchGCRA)
		b.Run("keys="+n.name+"/decide", func(b *testing.B) {
			b.ReportAllocs()
			cpu := usage.StartCPU()
			for i := uint64(0); b.Loop(); i++ {
				t.decide(b, storekit.Scramble(i)%n.keys)
			}
			cpu.Report(b, b.N)
		})
		b.Run("keys="+n.name+"/gc", benchGC)
		b.Run("keys="+n.name+"/grow", t.benchGrow)
		runtime.KeepAlive(t)
	}
	for _, n := range []tableSize{{"10k", 10_000}, {"10M", 10_000_000}} {
		b.Run("keys="+n.name+"/map", func(b *testing.B) { benchMap(b, n.keys) })
		b.Run("keys="+n.name+"/floor", func(b *testing.B) { benchFloor(b, n.keys) })
	}
}

// benchGrow measures the growth of a shard's index, which delays one request.
func (t *benchTable) benchGrow(b *testing.B) {
	table := TableOf(t.check.Zones[0].Counter)
	cpu := usage.StartCPU()
	for i := 0; b.Loop(); i++ {
		s := &table.shards[i%len(table.shards)]
		table.slots.reindex(&s.slab, 0, table.all())
	}
	cpu.Report(b, b.N)
}

// benchMap changes the values of keys in a Go map, under a lock.
func benchMap(b *testing.B, keys uint64) {
	m := make(map[stores.Key]*[2]int64)
	for i := range keys {
		m[storekit.BenchKey(i)] = new([2]int64)
	}
	var mu sync.Mutex
	b.ResetTimer()
	cpu := usage.StartCPU()
	for i := uint64(0); b.Loop(); i++ {
		mu.Lock()
		m[storekit.BenchKey(storekit.Scramble(i)%keys)][0]++
		mu.Unlock()
	}
	cpu.Report(b, b.N)
}

// benchFloor only reads an entry of an index and then the slot to which it refers,
// in memory of the same size. No table with an index can be faster.
func benchFloor(b *testing.B, keys uint64) {
	const words = keyWords + 2
	index, slots := make([]uint32, keys+keys/8), make([]int64, words*keys)
	preferHuge(slots)
	for i := range index {
		index[i] = uint32(storekit.Scramble(uint64(i)) % keys)
	}
	for i := range keys {
		slots[words*i] = int64(i & 1)
	}
	cpu := usage.StartCPU()
	at := uint64(0)
	for b.Loop() {
		at = storekit.Scramble(at)
		slot := index[at%uint64(len(index))]
		at += uint64(slots[words*slot])
	}
	cpu.Report(b, b.N)
	runtime.KeepAlive(at)
}

// benchGC measures full garbage collections.
func benchGC(b *testing.B) {
	cpu := usage.StartCPU()
	for b.Loop() {
		runtime.GC()
	}
	cpu.Report(b, b.N)
}

// BenchmarkMemory reports the memory per key, with its share of all structures, and
// the time to insert one. Ten million keys give the same results and take long, so
// they need DIANA_BENCH=long.
func BenchmarkMemory(b *testing.B) {
	sizes := []tableSize{{"1M", 1_000_000}}
	if os.Getenv("DIANA_BENCH") == "long" {
		sizes = append(sizes, tableSize{"10M", 10_000_000})
	}
	for _, n := range sizes {
		for _, rule := range []storekit.BenchRule{storekit.BenchGCRA, storekit.BenchFixedWindow, storekit.BenchSlidingWindow} {
			name := rule.Alg.CaddyModule().ID.Name()
			b.Run(fmt.Sprintf("%s/keys=%s", name, n.name), func(b *testing.B) {
				var bytes uint64
				for range b.N {
					before := usage.HeapAlloc()
					t := newBenchTable(b, n.keys, rule)
					bytes += usage.HeapAlloc() - before
					runtime.KeepAlive(t)
				}
				all := float64(n.keys) * float64(b.N)
				b.ReportMetric(float64(bytes)/all, "B/key")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/all, "ns/key")
				b.ReportMetric(0, "ns/op") // ns/key replaces it
			})
		}
	}
}
