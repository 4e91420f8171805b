// Package clock provides the monotonic clock of this process.
package clock

import (
	"sync/atomic"
	"time"
)

var (
	started   = time.Now()
	startedAt = started.UnixMicro()
)

// Now returns the time in microseconds since 1970-01-01 UTC. It is monotonic: it is set
// from the system clock when the process starts and ignores later changes of that clock.
func Now() int64 { return startedAt + time.Since(started).Microseconds() }

// wall is by how many microseconds the system's clock was set since this process started, and
// when that was looked at.
var wall struct{ ahead, seen atomic.Int64 }

// wallEvery is how often Wall looks at the system's clock at most, in microseconds.
const wallEvery = 100_000

// Wall returns the time on the system's clock when [Now] returned at. By how much that clock was
// set is known to the millisecond, a tenth of a second later.
func Wall(at int64) int64 {
	if at-wall.seen.Load() >= wallEvery {
		now := time.Now()
		ahead := now.UnixMicro() - startedAt - now.Sub(started).Microseconds()
		wall.ahead.Store(time.Duration(ahead * 1000).Round(time.Millisecond).Microseconds())
		wall.seen.Store(at)
	}
	return at + wall.ahead.Load()
}

// Elapsed returns the time since the process started. It reads only the monotonic clock,
// while time.Now reads the wall clock too.
func Elapsed() time.Duration { return time.Since(started) }
