package redis

import (
	"sync/atomic"
	"time"
)

// clock is this process' clock, and what answers have told of Redis'.
type clock struct {
	clock func() int64
	known atomic.Bool

	// By how many microseconds Redis' clock is ahead of ours. kept changes only
	// when it is off by maxDrift, so that what is counted by it does not seem to
	// jump; near follows every answer.
	kept, near atomic.Int64
}

const (
	// maxDrift is by how much Redis' clock may be misjudged, in microseconds.
	maxDrift = 50_000

	// slower is how slowly a lower estimate is taken: an answer that took long
	// makes Redis' clock seem to be behind.
	slower = 64

	// noEnd is a time that never comes.
	noEnd = 1 << 52
)

// learn takes the time that an answer tells, which has just arrived.
func (l *clock) learn(redis int64) {
	d := redis - l.clock()
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

// now is the instant on Redis' clock, as far as it is known, so that what Redis
// said and what is counted without it lie on one line of time.
func (l *clock) now() int64 { return l.clock() + l.kept.Load() }

// at is when it will be end on Redis' clock, at the latest, if answers are as
// quick as the quickest lately.
func (l *clock) at(end time.Time) int64 {
	if !l.known.Load() {
		return noEnd
	}
	return l.clock() + time.Until(end).Microseconds() + l.near.Load()
}
