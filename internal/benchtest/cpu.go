package benchtest

import (
	"testing"
	"time"
)

// CPU measures what a benchmark takes from the processors, its garbage
// collection included. Other programs on the same machine change the time that
// passes far more than this.
type CPU struct{ start time.Duration }

// StartCPU begins to measure.
func StartCPU() CPU { return CPU{cpuTime()} }

// Report reports the time for each of n operations as cpu-ns/op.
func (c CPU) Report(b *testing.B, n int) {
	b.Helper()
	if used := cpuTime() - c.start; used > 0 {
		b.ReportMetric(float64(used.Nanoseconds())/float64(n), "cpu-ns/op")
	}
}
