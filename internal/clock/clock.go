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

// Wall returns the time on the system's clock, to the millisecond by how much that was set
// since this process started, when [Now] returned at.
func Wall(at int64) int64 {
	now := time.Now()
	set := now.UnixMicro() - startedAt - now.Sub(started).Microseconds()
	return at + time.Duration(set*1000).Round(time.Millisecond).Microseconds()
}

// Elapsed returns the time since the process started. It reads only the monotonic clock,
// while time.Now reads the wall clock too.
func Elapsed() time.Duration { return time.Since(started) }
