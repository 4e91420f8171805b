// Package usage measures the resource usage of running servers.
package usage

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// CPU returns the CPU time of a process so far. It uses schedstat, in which Linux
// reports nanoseconds for each thread; /proc/<pid>/stat has hundredths of a second,
// too coarse for the cost of a handler.
func CPU(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		return 0, fmt.Errorf("process %d: no schedstat in /proc: want a running process, on Linux", pid)
	}
	var all int64
	for _, file := range threads {
		text, err := os.ReadFile(file) //nolint:gosec // found by the glob above
		if err != nil {
			continue // the thread has ended
		}
		onCPU, _, _ := bytes.Cut(text, []byte(" "))
		n, err := strconv.ParseInt(string(onCPU), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		all += n
	}
	return time.Duration(all), nil
}

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
