package memory

import (
	"runtime"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/internal/testkit/usage"
	"github.com/dianalimiter/diana/stores"
)

// BenchmarkSnapshots records the reported states of many keys, as each decision of
// Redis does, and reports the memory for each key, with its share of all structures.
func BenchmarkSnapshots(b *testing.B) {
	for _, n := range []tableSize{{"10k", 10_000}, {"1M", 1_000_000}} {
		b.Run("keys="+n.name, func(b *testing.B) {
			c := kit.NewBenchCounter(b, "snapshots", int64(n.keys), storekit.BenchGCRA)
			z := &stores.ZoneCheck{Counter: c, Cost: 1, Enforced: stores.Enforced{Rules: c.Rules}, Results: make([]stores.Result, 1)}
			z.Results[0].State = make([]int64, c.Rules[0].Words())
			snapshots, before := TableOf(c).Snapshots(), usage.HeapAlloc()
			for i := range n.keys {
				z.Key = storekit.BenchKey(i)
				snapshots.Learn(z, Instant{Local: 1, Shared: 1}, false, func() {})
			}
			size := usage.HeapAlloc() - before
			b.ResetTimer()
			cpu := usage.StartCPU()
			for i := uint64(0); b.Loop(); i++ {
				z.Key = storekit.BenchKey(storekit.Scramble(i) % n.keys)
				snapshots.Learn(z, Instant{Local: 2, Shared: 2}, false, func() {})
			}
			cpu.Report(b, b.N)
			b.ReportMetric(float64(size)/float64(n.keys), "B/key")
			runtime.KeepAlive(snapshots)
		})
	}
}
