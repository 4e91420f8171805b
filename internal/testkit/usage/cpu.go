package usage

import (
	"testing"
	"time"
)

// CPUMeter measures the CPU time of a benchmark, including garbage collection. It depends
// much less than elapsed time on other programs on the machine.
type CPUMeter struct{ start time.Duration }

// StartCPU starts a measurement.
func StartCPU() CPUMeter { return CPUMeter{cpuTime()} }

// Report reports the CPU time per operation of n as cpu-ns/op.
func (c CPUMeter) Report(b *testing.B, n int) {
	b.Helper()
	if used := cpuTime() - c.start; used > 0 {
		b.ReportMetric(float64(used.Nanoseconds())/float64(n), "cpu-ns/op")
	}
}
