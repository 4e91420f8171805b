package memory

import (
	"math/bits"

	"github.com/dianalimiter/diana/algorithms"
)

// arena stores the states that grow, in blocks of 1 + 4<<class words without a
// pointer, so that the garbage collector has nothing to scan. A reference to a
// block fits in a word of a slot. 0 is no block.
type arena struct {
	classes [arenaClasses]arenaClass
}

type arenaClass struct {
	pages [][]int64
	free  []uint32
	next  uint32
}

const (
	arenaClasses = 20
	arenaSmall   = 4 // stamps in a block of the smallest class
)

// never is the state of a growing rule for a key that was never seen.
var never = algorithms.State{0}

func blockWords(class int) int { return 1 + arenaSmall<<class }

// perPage is how many blocks of a class are allocated together.
func perPage(class int) uint32 { return max(1, uint32(64)>>class) }

func (a *arena) state(ref int64) algorithms.State {
	if ref == 0 {
		return never
	}
	class, i := int(ref>>32), uint32(ref)-1
	n, w := perPage(class), blockWords(class)
	at := int(i%n) * w
	return a.classes[class].pages[i/n][at : at+w : at+w]
}

// allocate returns a reference to a zeroed block of at least words words.
func (a *arena) allocate(words int) int64 {
	class := 0
	if words > blockWords(0) {
		class = bits.Len(uint(words-2)) - 2
	}
	c := &a.classes[class]
	if n := len(c.free); n > 0 {
		i := c.free[n-1]
		c.free = c.free[:n-1]
		ref := int64(class)<<32 | int64(i+1)
		clear(a.state(ref))
		return ref
	}
	if c.next%perPage(class) == 0 {
		c.pages = append(c.pages, make([]int64, int(perPage(class))*blockWords(class)))
	}
	c.next++
	return int64(class)<<32 | int64(c.next)
}

func (a *arena) release(ref int64) {
	if ref != 0 {
		c := &a.classes[ref>>32]
		c.free = append(c.free, uint32(ref)-1)
	}
}

// grow returns a reference to the same state in a block of at least words
// words.
func (a *arena) grow(ref int64, words int, rule algorithms.Growing) int64 {
	if ref != 0 && len(a.state(ref)) >= words {
		return ref
	}
	bigger := a.allocate(words)
	if ref != 0 {
		rule.Move(a.state(bigger), a.state(ref))
		a.release(ref)
	}
	return bigger
}
