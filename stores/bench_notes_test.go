package stores

import (
	"runtime"
	"testing"

	"github.com/dianalimiter/diana/internal/benchtest"
)

// BenchmarkNotes writes down what Redis said of one key after the other, as each
// request that Redis decides does, and tells what a note takes.
func BenchmarkNotes(b *testing.B) {
	for _, n := range []tableSize{{"10k", 10_000}, {"1M", 1_000_000}} {
		b.Run("keys="+n.name, func(b *testing.B) {
			c := newBenchCounter(b, "notes", int64(n.keys), benchGCRA)
			it := &Item{Counter: c, Cost: 1, Rules: c.Rules, Results: make([]Result, 1)}
			it.Results[0].state = make([]int64, c.Rules[0].Words())
			notes, before := tableOf(c).notes(), benchtest.HeapAlloc()
			for i := range n.keys {
				it.Key = benchKey(i)
				notes.learn(it, 1)
			}
			taken := benchtest.HeapAlloc() - before
			b.ResetTimer()
			cpu := benchtest.StartCPU()
			for i := uint64(0); b.Loop(); i++ {
				it.Key = benchKey(scramble(i) % n.keys)
				notes.learn(it, 2)
			}
			cpu.Report(b, b.N)
			b.ReportMetric(float64(taken)/float64(n.keys), "B/key")
			runtime.KeepAlive(notes)
		})
	}
}
