package redis

import (
	"sync/atomic"
	"time"
)

// alone finds out whether most checks of a node's keys are decided without it though it answers
// heartbeats, which have more time than checks. Such a node is told as away.
type alone struct {
	decided atomic.Uint64 // checks and charges that the node has answered in time

	// Only the node's watcher uses these.
	since                  time.Time // when the present period began
	before, failed, opened uint64    // decided, failures and openings of the breaker then
	is                     bool
}

const (
	aloneFor   = 5 * time.Second // how long a period is, at least of a node that is far
	aloneLeast = 20              // checks in it that say something
)

// turn says, at the end of a period, whether most checks in it were decided alone, and as before otherwise. If
// nothing is checked any more, only heartbeats can show that the node is near again.
func (a *alone) turn(now time.Time, opened, failures uint64, way, timeout time.Duration) bool {
	if a.since.IsZero() {
		a.since = now
	}
	if opened == a.opened && now.Sub(a.since) < aloneFor {
		return a.is
	}
	decided, failed := a.decided.Load()-a.before, failures-a.failed
	if opened != a.opened {
		a.is = false // that it was away is told
	} else if decided+failed >= aloneLeast {
		a.is = failed > decided
	} else if decided+failed > 0 {
		if !a.is && way >= timeout {
			return false // the period lasts until enough is checked
		}
		a.is = a.is && failed > decided
	} else {
		a.is = a.is && way >= timeout
	}
	a.since, a.opened, a.before, a.failed = now, opened, a.decided.Load(), failures
	return a.is
}
