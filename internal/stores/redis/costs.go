package redis

import (
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// CallStats are the totals of a store's calls of the script.
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

// CallStats returns the totals of the store's calls.
func (s *Store) CallStats() CallStats {
	c := &s.conn.costs
	return CallStats{Calls: c.calls.Load(), Checks: c.checks.Load(), Took: time.Duration(c.took.Load())}
}

// Share returns the limits of a counter that this instance enforces while the store is
// unavailable and on_failure is local.
func (s *Store) Share(c *stores.Counter) (rules []algorithms.Rule, inFlight int64) {
	return s.fallback.share(c), sharePermits(c.InFlight, s.fallback.shareOf())
}

// EnforcedShare returns the part of each limit that this instance enforces without Redis, 0
// to 1; 0: it counts nothing.
func (s *Store) EnforcedShare() float64 {
	if s.OnFailure() != FailLocal {
		return 0
	}
	return min(1, 1e6/float64(s.fallback.shareOf()))
}
