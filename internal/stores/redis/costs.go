package redis

import (
	"sync/atomic"
	"time"
)

// CallStats are the totals of the calls of the script for requests and reports. Heartbeats and
// what is handed over beside requests are not counted.
type CallStats struct {
	// Calls is the number of calls that were sent, answered or not.
	Calls uint64

	// Checks is the number of checks, and of charges after responses, that were batched
	// into them.
	Checks uint64

	// Took is the sum of the calls' durations, seen from this instance.
	Took time.Duration
}

// costs count the calls of the script. They are counted once per call, not per check.
type costs struct {
	calls, checks atomic.Uint64
	took          atomic.Int64 // nanoseconds
}

func (c *costs) add(checks int, took time.Duration) {
	c.calls.Add(1)
	c.checks.Add(uint64(checks))
	c.took.Add(int64(took))
}

// stats returns the totals.
func (c *costs) stats() CallStats {
	return CallStats{Calls: c.calls.Load(), Checks: c.checks.Load(), Took: time.Duration(c.took.Load())}
}
