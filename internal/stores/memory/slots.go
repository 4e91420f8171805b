package memory

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/stores"
)

// slots is the memory of a table: slots of equal length in a few large chunks
// of integers, which the garbage collector does not scan. The shards allocate
// them in pages. A slot never moves.
type slots struct {
	stride int
	most   uint32 // slots of the largest chunks, a power of two
	bits   int    // log2 of most
	chunks atomic.Pointer[[][]int64]
	mu     sync.Mutex
	pages  uint32 // allocated so far
}

// The first chunk has firstSlots slots, and each further chunk twice as many as
// the one before it, up to about chunkBytes, which bounds what one request has
// to zero for a new key. Chunks of the full size should lie in huge pages.
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

// bytes returns the size of a slot.
func (m *slots) bytes() int64 { return int64(m.stride) * 8 }

// begun returns the most bytes of slots that are allocated and not yet used:
// one page in each shard, and one chunk.
func (m *slots) begun(shards int) int64 {
	return m.bytes() * (int64(shards)*pageSlots + int64(m.most))
}

// where returns the chunk of a slot and the slot's index in it.
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

// find returns the slot of a key, or nil. The index holds the candidates; a
// slot begins with its key.
func (m *slots) find(x *index, k stores.Key, mix uint64) []int64 {
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

// pages are the numbers of a shard's pages in the order of allocation.
type pages []uint32

// nth returns the number of the i-th slot in the pages.
func (p pages) nth(i uint32) uint32 { return p[i/pageSlots]*pageSlots + i%pageSlots }

// page allocates the next page and returns its number.
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
