package stores

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// slots is the memory of a table: slots of equal length in a few large chunks
// of integers, so that the garbage collector has next to nothing to look at. The
// shards take them in pages. A slot stays where it is.
type slots struct {
	stride int
	most   uint32 // slots of the largest chunks, a power of two
	bits   int    // whose power it is
	chunks atomic.Pointer[[][]int64]
	mu     sync.Mutex
	pages  uint32 // that were taken
}

// The first chunk has firstSlots slots and every further one twice as many as
// the one before it, up to about chunkBytes, which is the most that one request
// may have to clear for a new key. Those of that size are to lie in huge pages.
const (
	pageSlots  = 16
	firstSlots = 64
	chunkBytes = 1 << 20
	maxSlots   = 1 << 31
)

func (m *slots) init(stride int) {
	m.stride = stride
	m.most = firstSlots
	for int(m.most)*stride*8*2 <= chunkBytes {
		m.most *= 2
	}
	m.bits = bits.TrailingZeros32(m.most)
	m.chunks.Store(new([][]int64))
}

// bytes are those of a slot.
func (m *slots) bytes() int64 { return int64(m.stride) * 8 }

// begun is the most bytes of slots that are not yet used: each shard can have a
// page, and all of them a chunk, that has just begun.
func (m *slots) begun(shards int) int64 {
	return m.bytes() * (int64(shards)*pageSlots + int64(m.most))
}

// where says in which chunk a slot is, and where there.
func (m *slots) where(slot uint32) (chunk int, at uint32) {
	x := slot + firstSlots
	chunk = min(bits.Len32(x), bits.Len32(m.most)) - bits.Len32(firstSlots)
	if x < m.most {
		return chunk, x - firstSlots<<chunk
	}
	x -= m.most
	return chunk + int(x>>m.bits), x & (m.most - 1)
}

func (m *slots) at(slot uint32) []int64 {
	chunk, at := m.where(slot)
	w := m.stride
	from := int(at) * w
	return (*m.chunks.Load())[chunk][from : from+w : from+w]
}

// find returns the slot of a key that an index leads to, or nil. A slot begins with
// its key.
func (m *slots) find(x *index, k Key, mix uint64) []int64 {
	tag, entries := x.tag(mix), x.entries
	if len(entries) == 0 {
		return nil
	}
	for i := x.home(mix); ; {
		e := entries[i]
		if e == 0 {
			return nil
		}
		if x.tagOf(e) == tag {
			if slot := m.at(x.slot(e)); slot[0] == int64(k.Hi) && slot[1] == int64(k.Lo) {
				return slot
			}
		}
		if i++; i == len(entries) {
			i = 0
		}
	}
}

// pages are the numbers of a shard's pages, in the order in which it took them.
type pages []uint32

// nth is the number of the i-th slot in them.
func (p pages) nth(i uint32) uint32 { return p[i/pageSlots]*pageSlots + i%pageSlots }

// page takes the next page and returns its number.
func (m *slots) page() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	page := m.pages
	m.pages++
	chunks := *m.chunks.Load()
	if c, _ := m.where(page * pageSlots); c == len(chunks) {
		size := min(int(m.most), firstSlots<<min(c, 20))
		chunk := make([]int64, size*m.stride)
		if size == int(m.most) {
			preferHuge(chunk)
		}
		chunks = append(chunks[:c:c], chunk) // readers keep the old list
		m.chunks.Store(&chunks)
	}
	return page
}
