package redis

import (
	"fmt"
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
	aloneFor   = 5 * time.Second // how long a period is
	aloneLeast = 20              // checks in it that say something
)

// turn says, at the end of a period, whether most checks in it were decided alone, and as before otherwise. If
// nothing is checked any more, only heartbeats can show that the node is near again.
func (a *alone) turn(n *node, now time.Time, timeout time.Duration) bool {
	opened := n.breaker.opened.Load()
	if opened == a.opened && now.Sub(a.since) < aloneFor {
		return a.is
	}
	decided, failed := a.decided.Load()-a.before, n.failures.Load()-a.failed
	if opened != a.opened {
		a.is = false // that it was away is told
	} else if decided+failed >= aloneLeast {
		a.is = failed > decided
	} else if decided+failed > 0 {
		a.is = a.is && failed > decided
	} else {
		a.is = a.is && time.Duration(n.distance.is.Load()) >= timeout
	}
	a.since, a.opened, a.before, a.failed = now, opened, a.decided.Load(), n.failures.Load()
	return a.is
}

// tellAlone reports a node as away whose heartbeats succeed, if most checks are decided without it, and
// as used when that is over.
func (c *conn) tellAlone(n *node) {
	was := n.alone.is
	if is := n.alone.turn(n, time.Now(), c.o.Timeout); is != was {
		c.nodes.changed(n, !is || n.breaker.open.Load(), tooFar{time.Duration(n.distance.is.Load()), c.o.Timeout})
	}
}

// tooFar is why a node that answers is told as away.
type tooFar struct{ way, timeout time.Duration }

// Error implements error.
func (e tooFar) Error() string {
	return fmt.Sprintf(aloneThough+": %v to Redis of %v allowed", e.way.Round(time.Millisecond/10), e.timeout)
}

// Timeout implements the method of net.Error.
func (tooFar) Timeout() bool { return true }

const (
	aloneThough = "most checks are decided without Redis, though it answers"
	raise       = "raise timeout to at least twice the way to Redis, or find what makes it slow"
)
