package memory

import "math/bits"

// index finds the slots of a shard's keys by open addressing with linear
// probing. An entry holds the slot's number + 1 in its lower bits and a part of
// the key's hash, the tag, above them, so that a search rarely reads another
// key's slot. An entry of 0 is empty.
type index struct {
	entries []uint32
	bits    int // of an entry that hold the slot's number
}

const minIndex = 16

// home returns the entry where the search for a key begins.
func (x *index) home(mix uint64) int {
	h, _ := bits.Mul64(mix, uint64(len(x.entries)))
	return int(h)
}

// tag returns the part of a key's hash that its entry holds: bits that select
// neither the shard nor, except in a huge table, the home.
func (x *index) tag(mix uint64) uint32 { return uint32(mix>>10) << x.bits }

// tagOf returns the tag of an entry.
func (x *index) tagOf(entry uint32) uint32 { return entry &^ (1<<x.bits - 1) }

func (x *index) next(i int) int {
	if i++; i == len(x.entries) {
		return 0
	}
	return i
}

// link adds a slot that is not in the index. The index must have room.
func (x *index) link(slot uint32, mix uint64) {
	i := x.home(mix)
	for x.entries[i] != 0 {
		i = x.next(i)
	}
	x.entries[i] = x.tag(mix) | slot + 1
}

// unlink removes a slot. The entries after it move up, so that every search
// still ends at the first empty entry. mixOf returns the hash of another slot's
// key.
func (x *index) unlink(slot uint32, mix uint64, mixOf func(slot uint32) uint64) {
	i, n := x.home(mix), len(x.entries)
	for x.entries[i] != x.tag(mix)|slot+1 {
		i = x.next(i)
	}
	for j := i; ; {
		j = x.next(j)
		if x.entries[j] == 0 {
			break
		}
		// An entry may move into the gap unless its search begins after the
		// gap.
		at := x.home(mixOf(x.slot(x.entries[j])))
		if (j-at+n)%n >= (j-i+n)%n {
			x.entries[i] = x.entries[j]
			i = j
		}
	}
	x.entries[i] = 0
}

// slot returns the slot that an entry holds.
func (x *index) slot(entry uint32) uint32 { return entry&(1<<x.bits-1) - 1 }

// room says whether one more slot with this number fits beside the used ones.
func (x *index) room(used int, slot uint32) bool {
	return (used+1)*8 <= len(x.entries)*7 && uint64(slot)+1 < 1<<x.bits
}

// grow empties the index and makes it large enough for one more slot than are
// used, with numbers up to most. all is the highest number to be expected. The
// caller links all slots again.
func (x *index) grow(used int, all uint64, most uint32) {
	size := len(x.entries)
	if !x.room(used, 0) {
		size = max(minIndex, size+size/4)
	}
	*x = index{make([]uint32, size), bits.Len64(max(all, uint64(most)+1))}
}
