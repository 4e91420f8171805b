package redis

import (
	"sync/atomic"
	"time"
)

// clock is the clock of this process, with an estimate of a node's clock from its
// replies. Each master of a Cluster has a clock of its own.
type clock struct {
	local func() int64
	known atomic.Bool

	// By how many microseconds Redis' clock is ahead. kept changes only when it
	// is off by more than maxDrift, so that counts by this clock see no jumps.
	// near follows every reply.
	kept, near atomic.Int64
}

const (
	// maxDrift is by how many microseconds Redis' clock may be misjudged.
	maxDrift = 50_000

	// slower is by how much lower estimates are damped: a slow reply makes
	// Redis' clock appear to be behind.
	slower = 64

	// noEnd is a time that is never reached.
	noEnd = 1 << 52
)

// learn takes the time in a reply that has just arrived.
func (l *clock) learn(redis int64) {
	d := redis - l.local()
	if was := l.kept.Load(); d > was+maxDrift || d < was-maxDrift {
		l.kept.Store(d)
	}
	if near := l.near.Load(); d > near || !l.known.Load() {
		l.near.Store(d)
		l.known.Store(true)
	} else {
		l.near.Store(near - (near-d)/slower)
	}
}

// now returns the estimated time on Redis' clock, so that what Redis reported
// and what is counted without it are on one timeline.
func (l *clock) now() int64 { return l.shared(l.local()) }

// shared returns the estimated time on Redis' clock at a time of this process.
func (l *clock) shared(local int64) int64 { return local + l.kept.Load() }

// ahead returns by how much a time on Redis' clock, which is not behind it at a time of this process, may be ahead
// of it. Below 0: Redis' clock was set forward since.
func (l *clock) ahead(redis, local int64) int64 {
	if !l.known.Load() {
		return 0
	}
	return redis - local - l.near.Load()
}

// at returns the latest time on Redis' clock at end, if it is now and replies are as fast as
// the fastest of late.
func (l *clock) at(end, now time.Time) int64 {
	if !l.known.Load() {
		return noEnd
	}
	return l.local() + end.Sub(now).Microseconds() + l.near.Load()
}
