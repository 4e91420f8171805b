package benchtest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/usage"
)

// RedisMeter measures the resource usage of Redis in a benchmark.
type RedisMeter struct {
	client redis.UniversalClient
	pid    int
	start  usage.Redis
}

// StartRedis starts a measurement.
func StartRedis(b *testing.B, c redis.UniversalClient, pid int) *RedisMeter {
	b.Helper()
	start, err := usage.ReadRedis(b.Context(), c, pid)
	if err != nil {
		b.Fatal(err)
	}
	return &RedisMeter{c, pid, start}
}

// Report reports, per decision of n, the script calls, Redis' execution time in them,
// and the CPU time of the whole server.
func (m *RedisMeter) Report(b *testing.B, n int) {
	b.Helper()
	now, err := usage.ReadRedis(b.Context(), m.client, m.pid)
	if err != nil {
		b.Fatal(err)
	}
	d := now.Since(m.start)
	each := func(v float64) float64 { return v / float64(n) }
	b.ReportMetric(each(float64(d.Calls)), "redis-calls/op")
	b.ReportMetric(each(float64(d.Inside.Nanoseconds())/1e3), "redis-us/op")
	b.ReportMetric(each(float64(d.CPU.Nanoseconds())/1e3), "redis-cpu-us/op")
}
