// Package topk finds the keys that come most often, in a fixed size and without
// ever making anybody wait.
package topk

import (
	"cmp"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
)

// Sketch counts keys, roughly: Space-Saving (Metwally, Agrawal, El Abbadi, 2005)
// with a randomized admission, in small sets, of which a key's hash chooses one.
// Counts halve with each [Epoch], so that they tell of the last minutes.
//
// A set that is being counted in by somebody else is left alone: that one time is
// not counted. The zero value is empty and ready.
type Sketch struct {
	sets [numSets]set
}

const (
	numSets = 32
	ways    = 8

	// Kept is how many keys a sketch has room for.
	Kept = numSets * ways

	// EpochBits make an epoch of 2^26 microseconds, a little more than a minute.
	EpochBits = 26
)

// entry is a key with how often it came, of which as many as over may have been
// those of the key whose place it took.
type entry struct {
	hi, lo      uint64
	count, over uint32
}

type set struct {
	busy    atomic.Uint32
	epoch   uint32
	entries [ways]entry
}

// Epoch is that of an instant in microseconds.
func Epoch(us int64) uint32 { return uint32(us >> EpochBits) }

// Add counts a key, the bits of whose hash are hi and lo. It returns how often
// the key certainly came, or 0 if it was not counted. Epoch 0 stands for the
// last one that was seen.
func (s *Sketch) Add(hi, lo uint64, epoch uint32) uint32 {
	x := &s.sets[(hi^lo>>32)%numSets]
	if !x.busy.CompareAndSwap(0, 1) {
		return 0
	}
	if epoch > x.epoch {
		x.age(epoch)
	}
	least := 0
	for i := range x.entries {
		e := &x.entries[i]
		if e.lo == lo && e.hi == hi && e.count > 0 {
			e.count++
			n := e.count - e.over
			x.busy.Store(0)
			return n
		}
		if e.count < x.entries[least].count {
			least = i
		}
	}
	// The more often the least frequent key came, the less likely a new one takes
	// its place (Ben Basat et al., Randomized Admission Policy, 2017): millions of
	// keys that come once leave those in peace that come often.
	e, n := &x.entries[least], uint32(0)
	if rand.Uint32() < math.MaxUint32/(e.count+1) { //nolint:gosec // it only samples
		e.hi, e.lo, e.over, n = hi, lo, e.count, 1
		e.count++
	}
	x.busy.Store(0)
	return n
}

// age halves what is counted for every epoch that has passed.
func (x *set) age(epoch uint32) {
	by := epoch - x.epoch
	x.epoch = epoch
	for i := range x.entries {
		e := &x.entries[i]
		e.count >>= by // 0 from 32 on
		e.over >>= by
	}
}

// Count is how often a key came.
type Count struct {
	Hi, Lo uint64
	Times  uint32
}

// Top returns at most n of the keys that certainly came, the most frequent
// first, with how often.
func (s *Sketch) Top(n int, epoch uint32) []Count {
	all := make([]Count, 0, Kept)
	for i := range s.sets {
		x := &s.sets[i]
		for !x.busy.CompareAndSwap(0, 1) {
			// Whoever counts there is done within nanoseconds.
			runtime.Gosched()
		}
		if epoch > x.epoch {
			x.age(epoch)
		}
		for _, e := range x.entries {
			if e.count > e.over {
				all = append(all, Count{e.hi, e.lo, e.count - e.over})
			}
		}
		x.busy.Store(0)
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo))
	})
	return all[:min(n, len(all))]
}
