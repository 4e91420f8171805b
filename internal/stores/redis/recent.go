package redis

import "sync/atomic"

// saidLasts is for how many microseconds what Redis said of a key denies further checks of it.
const saidLasts = 1_000_000

// recent says since when what Redis said is recent enough to deny checks without a call.
type recent struct {
	lasts    int64 // microseconds
	wasReset atomic.Int64
}

// reset notes that a key was reset: what was asked until then is outdated, also in the same microsecond.
func (r *recent) reset(now int64) { r.wasReset.Store(now + 1) }

// since returns when a call must have left, at the earliest, so that its answer is recent.
func (r *recent) since(n *node, now int64) int64 {
	return max(now-r.lasts, r.wasReset.Load(), n.notice(now))
}

// noticed is an epoch of a node, and when a check first noticed it: before its call left.
type noticed struct {
	epoch uint64
	at    int64
}

// notice notes the node's present epoch, and returns when that was first noticed.
func (n *node) notice(now int64) (since int64) {
	was, epoch := n.noticed.Load(), n.epoch()
	if was != nil && was.epoch == epoch {
		return was.at
	}
	n.noticed.CompareAndSwap(was, &noticed{epoch, now})
	return now
}
