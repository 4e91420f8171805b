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
// While keys come more than ten thousand times a second one in sixteen is counted,
// for all of them. A set that is being counted in by somebody else is left alone: that one time is
// not counted. The zero value is empty and ready.
type Sketch struct {
	skip  atomic.Uint32 // how many of sixteen are not counted: 0 or 15
	_     [124]byte     // what changes seldom apart from what changes always
	adds  atomic.Uint32 // counted since
	since atomic.Int64  // in microseconds
	_     [112]byte

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

const (
	sampled  = 16      // one in so many is counted while keys come fast
	fast     = 10_000  // a second
	slow     = 5_000   // a second, from which on all are counted again
	lookAdds = 1024    // how fast is looked at after so many
	lookTime = 1 << 20 // or after so many microseconds
)

// Dice are random enough to sample by and quicker than math/rand/v2: a linear
// congruential generator with the constants of Knuth's MMIX, of which the upper bits
// are used. Whoever makes one begins with a random number.
type Dice uint64

// Throw returns random bits.
func (d *Dice) Throw() uint32 {
	*d = *d*6364136223846793005 + 1442695040888963407
	return uint32(*d >> 32)
}

// Add counts a key, the bits of whose hash are hi and lo, at an instant in
// microseconds. It returns how often the key certainly came, or 0 if it was not
// counted, which random bits from [Dice] decide while keys come fast.
func (s *Sketch) Add(hi, lo uint64, now int64, random uint32) uint32 {
	if random&s.skip.Load() != 0 {
		return 0
	}
	return s.count(hi, lo, now)
}

// count counts a key for itself and for those that were skipped.
func (s *Sketch) count(hi, lo uint64, now int64) uint32 {
	skip := s.skip.Load()
	n, took := s.adds.Add(1), now-s.since.Load()
	if n >= lookAdds || took < 0 || took > lookTime {
		s.pace(now, took, n*(skip+1))
	}
	return s.add(hi, lo, Epoch(now), skip+1)
}

// pace looks at how fast keys come: n in so many microseconds.
func (s *Sketch) pace(now, took int64, n uint32) {
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

// add counts a key for times of them.
func (s *Sketch) add(hi, lo uint64, epoch, times uint32) uint32 {
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
	if rand.Uint32() <= math.MaxUint32/(e.count/times+1) { //nolint:gosec // it only samples
		e.hi, e.lo, e.over, n = hi, lo, e.count, times
		e.count += times
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
	Hi, Lo uint64 // the key's hash
	Times  uint32 // about how often, lately
}

// Top returns at most n of the keys that certainly came, the most frequent
// first, with how often.
func (s *Sketch) Top(n int, now int64) []Count {
	epoch := Epoch(now)
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
