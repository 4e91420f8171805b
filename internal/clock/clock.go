// Package clock provides the monotonic clock of this process.
package clock

import "time"

var (
	started   = time.Now()
	startedAt = started.UnixMicro()
)

// Now returns the time in microseconds since 1970-01-01 UTC. It is monotonic: it is set
// from the system clock when the process starts and ignores later changes of that clock.
func Now() int64 { return startedAt + time.Since(started).Microseconds() }

// Elapsed returns the time since the process started. It reads only the monotonic clock,
// while time.Now reads the wall clock too.
func Elapsed() time.Duration { return time.Since(started) }
