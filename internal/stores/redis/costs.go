package redis

import (
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/stores"
)

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
func (c *costs) stats() stores.CallStats {
	return stores.CallStats{Calls: c.calls.Load(), Checks: c.checks.Load(), Took: time.Duration(c.took.Load())}
}
