package usage

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is the usage of a Redis server so far.
type Redis struct {
	Calls  int64         // of scripts
	Inside time.Duration // spent in those calls
	CPU    time.Duration // of the whole server
}

// ReadRedis reads the usage of the server of c, whose process ID is pid.
func ReadRedis(ctx context.Context, c redis.UniversalClient, pid int) (u Redis, err error) {
	text, err := c.Info(ctx, "commandstats").Result()
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_evalsha:")
		if !ok {
			continue
		}
		var usec int64
		if _, err := fmt.Sscanf(rest, "calls=%d,usec=%d,", &u.Calls, &usec); err != nil {
			return u, fmt.Errorf("commandstats %q: %w", rest, err)
		}
		u.Inside = time.Duration(usec) * time.Microsecond
	}
	u.CPU, err = CPU(pid)
	return u, err
}

// Since returns the usage between before and u.
func (u Redis) Since(before Redis) Redis {
	return Redis{u.Calls - before.Calls, u.Inside - before.Inside, u.CPU - before.CPU}
}

// RedisMeter measures the resource usage of Redis in a benchmark.
type RedisMeter struct {
	client redis.UniversalClient
	pid    int
	start  Redis
}

// StartRedis starts a measurement.
func StartRedis(b *testing.B, c redis.UniversalClient, pid int) *RedisMeter {
	b.Helper()
	start, err := ReadRedis(b.Context(), c, pid)
	if err != nil {
		b.Fatal(err)
	}
	return &RedisMeter{c, pid, start}
}

// Report reports, per decision of n, the script calls, Redis' execution time in them,
// and the CPU time of the whole server.
func (m *RedisMeter) Report(b *testing.B, n int) {
	b.Helper()
	now, err := ReadRedis(b.Context(), m.client, m.pid)
	if err != nil {
		b.Fatal(err)
	}
	d := now.Since(m.start)
	each := func(v float64) float64 { return v / float64(n) }
	b.ReportMetric(each(float64(d.Calls)), "redis-calls/op")
	b.ReportMetric(each(float64(d.Inside.Nanoseconds())/1e3), "redis-us/op")
	b.ReportMetric(each(float64(d.CPU.Nanoseconds())/1e3), "redis-cpu-us/op")
}
