// Package usage measures the resource usage of running servers.
package usage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
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
