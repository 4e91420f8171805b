// Package clock is the clock of this process.
package clock

import "time"

var (
	started   = time.Now()
	startedAt = started.UnixMicro()
)

// Now returns the time in microseconds since 1970-01-01 UTC. It starts from the
// system's clock and then only moves forward, whatever is done to that clock.
func Now() int64 { return startedAt + time.Since(started).Microseconds() }

// Elapsed returns the time since the process started. It reads one clock, where
// time.Now reads two.
func Elapsed() time.Duration { return time.Since(started) }
