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
func (r *recent) since(n *server, now int64) int64 {
	return max(now-r.lasts, r.wasReset.Load(), n.notice(now))
}
