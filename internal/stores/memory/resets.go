package memory

import (
	"maps"

	"github.com/dianalimiter/diana/stores"
)

// resetsLast is for how many microseconds a reset is remembered: until nothing is under way any more of what the key
// owed before.
const resetsLast = 60_000_000

// resets are when the keys of a shard were reset of late, on both clocks. What comes back to a key that was charged
// again since could not be told from what it owes now.
type resets struct {
	of   map[stores.Key]Instant
	most int // how many there may be before those that are over are removed
}

// note notes a reset.
func (r *resets) note(k stores.Key, now Instant) {
	if len(r.of) >= r.most {
		maps.DeleteFunc(r.of, func(_ stores.Key, at Instant) bool { return at.Local < now.Local-resetsLast })
		r.most = 2*len(r.of) + 8
	}
	if r.of == nil {
		r.of = make(map[stores.Key]Instant)
	}
	r.of[k] = now
}

// since says whether a key was reset after a time. local is the clock of this process.
func (r *resets) since(k stores.Key, at, local int64) bool {
	last, ok := r.of[k]
	return ok && at < last.Shared && last.Local >= local-resetsLast
}
