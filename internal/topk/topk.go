// Package topk estimates the most frequent keys of a stream in constant space, without
// blocking writers.
package topk

import (
	"cmp"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
)

// Sketch estimates the counts of keys: Space-Saving (Metwally, Agrawal, El Abbadi, 2005)
// with randomized admission, in a set-associative table indexed by the key's hash. Counts
// halve with each [Epoch], so that they reflect the last minutes.
//
// Above ten thousand keys per second, one in sixteen is sampled and counts sixteenfold. A
// key whose set is locked by another goroutine is not counted. The zero value is ready
// for use.
type Sketch struct {
	skip  atomic.Uint32 // how many of sixteen keys are not counted: 0 or 15
	_     [124]byte     // keeps skip, which changes rarely, in a cache line of its own
	adds  atomic.Uint32 // keys counted since
	since atomic.Int64  // in microseconds
	_     [112]byte

	sets [numSets]set
}

const (
	numSets = 32
	ways    = 8

	// Kept is the number of keys in a full sketch.
	Kept = numSets * ways

	// EpochBits is the binary logarithm of an epoch in microseconds: 2^26 are about
	// 67 seconds.
	EpochBits = 26
)

// entry is a key with its count, which may be too high by at most over: the count of the
// key that it replaced.
type entry struct {
	hi, lo      uint64
	count, over uint64
	note        uint32 // of the last time
}

type set struct {
	busy    atomic.Uint32
	epoch   uint32
	entries [ways]entry
}

// Epoch returns the epoch of an instant in microseconds.
func Epoch(us int64) uint32 { return uint32(us >> EpochBits) }

const (
	sampled  = 16      // one in 16 keys is sampled above the rate fast
	fast     = 10_000  // keys per second above which sampling starts
	slow     = 5_000   // keys per second below which sampling ends
	rateAdds = 1024    // the rate is measured after this many keys
	rateTime = 1 << 20 // or after this many microseconds
)

// Add counts a key with the hash hi and lo a number of times, at most 2^40, at an instant in
// microseconds. It returns a lower bound of the key's count, or 0 if it was not counted. random
// are random bits, which decide whether the key is sampled. The key keeps the note.
func (s *Sketch) Add(hi, lo uint64, now int64, random uint32, times uint64, note uint32) uint64 {
	if random&s.skip.Load() != 0 {
		return 0
	}
	return s.count(hi, lo, now, times, note)
}

// count counts a key with the weight of the keys that were skipped.
func (s *Sketch) count(hi, lo uint64, now int64, times uint64, note uint32) uint64 {
	skip := s.skip.Load()
	n, took := s.adds.Add(1), now-s.since.Load()
	if n >= rateAdds || took < 0 || took > rateTime {
		s.setSampling(now, took, n*(skip+1))
	}
	return s.add(hi, lo, Epoch(now), times*uint64(skip+1), note)
}

// setSampling starts or ends sampling after n keys in took microseconds.
func (s *Sketch) setSampling(now, took int64, n uint32) {
	s.since.Store(now)
	s.adds.Store(0)
	switch perSecond := int64(n) * 1_000_000 / max(1, took); {
	case took < 0: // the clock was set back
	case perSecond > fast:
		s.skip.Store(sampled - 1)
	case perSecond < slow:
		s.skip.Store(0)
	}
}

// add counts a key with a weight.
func (s *Sketch) add(hi, lo uint64, epoch uint32, times uint64, note uint32) uint64 {
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
			e.count += times
			e.note = note
			n := e.count - e.over
			x.busy.Store(0)
			return n
		}
		if e.count < x.entries[least].count {
			least = i
		}
	}
	// The higher the count of the least frequent key, the less likely a new key
	// replaces it (Ben Basat et al., Randomized Admission Policy, 2017), so that
	// millions of rare keys do not evict the frequent ones.
	e, n := &x.entries[least], uint64(0)
	if uint64(rand.Uint32()) <= math.MaxUint32/(e.count/times+1) { //nolint:gosec // it only samples
		e.hi, e.lo, e.over, e.note, n = hi, lo, e.count, note, times
		e.count += times
	}
	x.busy.Store(0)
	return n
}

// age halves the counts for every epoch that has passed.
func (x *set) age(epoch uint32) {
	by := epoch - x.epoch
	x.epoch = epoch
	for i := range x.entries {
		e := &x.entries[i]
		e.count >>= by // 0 from 64 on
		e.over >>= by
	}
}

// Count is the count of a key.
type Count struct {
	Hi, Lo uint64 // the key's hash
	Times  uint64 // a lower bound of its decayed count
	Note   uint32 // of the last time
}

// Top returns at most n of the keys with a lower bound above zero, by descending count.
func (s *Sketch) Top(n int, now int64) []Count {
	epoch := Epoch(now)
	all := make([]Count, 0, Kept)
	for i := range s.sets {
		x := &s.sets[i]
		for !x.busy.CompareAndSwap(0, 1) {
			// The set is locked for nanoseconds only.
			runtime.Gosched()
		}
		if epoch > x.epoch {
			x.age(epoch)
		}
		for _, e := range x.entries {
			if e.count > e.over {
				all = append(all, Count{e.hi, e.lo, e.count - e.over, e.note})
			}
		}
		x.busy.Store(0)
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Hi, b.Hi), cmp.Compare(a.Lo, b.Lo))
	})
	return all[:min(n, len(all))]
}
