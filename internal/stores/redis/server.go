package redis

import (
	"sync/atomic"
	"time"
)

// server is what calls to one server have shown of it: whether it answers, its clock, its distance and its
// connections. Each node has its own, so that the failure of one does not affect calls to others.
type server struct {
	address  string // host:port; empty if it is the only one
	serial   uint64 // of this process' nodes
	breaker  *breaker
	tracker  *connTracker
	clock    clock
	distance distance
	alone    alone
	doubted  chan struct{} // a call has timed out: the watcher asks the node at once
	failures atomic.Uint64 // calls that failed
	noticed  atomic.Pointer[noticed]

	told  atomic.Int64           // when its last heartbeat was, by its clock; below 0: it may have restarted since; 0: none has succeeded
	ahead atomic.Pointer[offset] // by how much its clock was ahead then; nil: none has succeeded

	outcomes outcomes
	rejected atomic.Pointer[target] // of a call because of which it is away; it has accepted none there since
}

// toldAs takes over when the last heartbeat was.
func (n *server) toldAs(before *server) {
	n.told.Store(before.told.Load())
	n.ahead.Store(before.ahead.Load())
}

// offset is by how many microseconds a node's clock is ahead of that of this process. A reply shows it as closely as
// the call took.
type offset struct{ least, most int64 }

// offsetOf returns the offset that the reply to a call shows: the node's clock was now between when the call left and
// when the reply was read, by the clock of this process.
func offsetOf(now, left, read int64) *offset { return &offset{now - read, now - left} }

// wasSet says whether the node's clock, which has an offset now, was set since its last heartbeat: then those in its list
// appear to be older than they are, or not to have been yet.
func (n *server) wasSet(now *offset) bool {
	was := n.ahead.Load()
	return was != nil && max(now.least-was.most, was.least-now.most) > leastSet
}

// leastSet is by how many microseconds a clock is set at least that is not one which drifts.
const leastSet = 500_000

// epoch changes when what was learnt of the node's keys may be outdated: after a
// failure, after a new connection, and if another node serves the keys.
func (n *server) epoch() uint64 {
	return n.serial<<48 + n.failures.Load() + n.tracker.opened.Load()
}

// connected is epoch without the failures.
func (n *server) connected() uint64 { return n.serial<<48 + n.tracker.opened.Load() }

var nodeSerials atomic.Uint64

// isAlone ends a period of [alone] if it is over, and says why checks are decided alone; nil: they are not.
func (n *server) isAlone(now time.Time, timeout time.Duration) error {
	opened, way := n.breaker.opened.Load(), time.Duration(n.distance.is.Load())
	if n.alone.turn(now, opened, n.failures.Load(), way, timeout) {
		return tooFar{way, timeout}
	}
	if some, err := n.outcomes.someFail(opened, now); some {
		return undecided{"some", err}
	}
	return nil
}

// noticed is an epoch of a node, and when a check first noticed it: before its call left.
type noticed struct {
	epoch uint64
	at    int64
}

// notice notes the node's present epoch, and returns when that was first noticed.
func (n *server) notice(now int64) (since int64) {
	was, epoch := n.noticed.Load(), n.epoch()
	if was != nil && was.epoch == epoch {
		return was.at
	}
	n.noticed.CompareAndSwap(was, &noticed{epoch, now})
	return now
}
