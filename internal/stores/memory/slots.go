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
	seed   [2]uint64
	hand   atomic.Uint32 // where elsewhere goes on
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

func (m *slots) init(stride int, seed [2]uint64) {
	m.stride, m.seed = stride, seed
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

// mix distributes keys over shards and index entries. It is seeded, so that
// nobody who knows how keys are hashed can predict it.
func (m *slots) mix(k stores.Key) uint64 {
	hi, lo := bits.Mul64(k.Hi^m.seed[0], k.Lo^m.seed[1])
	return hi ^ lo
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

// slab is the part of a shard that finds its slots by their keys.
type slab struct {
	mu    sync.Mutex
	index index
	used  int // slots that have a key

	pages pages
	next  uint32   // slots of the pages that had a key so far
	free  []uint32 // those of them that have none now
	hand  uint32   // where evictable goes on
}

const (
	candidates  = 64 // slots that evictable looks at
	othersToTry = 64 // shards that elsewhere looks at
)

// keyIn returns the key in a slot, zero if the slot is unused.
func keyIn(slot []int64) stores.Key { return stores.Key{Hi: uint64(slot[0]), Lo: uint64(slot[1])} }

// insert returns a new slot for a key that has none, whose other words are zero. all is the highest number of
// slots to be expected.
func (m *slots) insert(s *slab, k stores.Key, mix, all uint64) []int64 {
	n := m.allocate(s)
	if !s.index.room(s.used, n) {
		m.reindex(s, n, all)
	}
	s.used++
	slot := m.at(n)
	slot[0], slot[1] = int64(k.Hi), int64(k.Lo)
	s.index.link(n, mix)
	return slot
}

// allocate returns the number of an unused slot, whose words are zero.
func (m *slots) allocate(s *slab) uint32 {
	if f := len(s.free); f > 0 {
		n := s.free[f-1]
		s.free = s.free[:f-1]
		return n
	}
	if s.next%pageSlots == 0 {
		s.pages = append(s.pages, m.page())
	}
	s.next++
	return s.pages.nth(s.next - 1)
}

// reindex makes the index large enough for another key, in a slot up to most.
// It reads the slots in the order in which they lie in memory, which is much
// faster than the order of the old index.
func (m *slots) reindex(s *slab, most uint32, all uint64) {
	s.index.grow(s.used, all, most)
	for i := range s.next {
		n := s.pages.nth(i)
		if k := keyIn(m.at(n)); k != (stores.Key{}) {
			s.index.link(n, m.mix(k))
		}
	}
}

// evictable returns the number of a slot that may be removed. It looks at a bounded number of slots and goes on
// from there the next time.
func (m *slots) evictable(s *slab, may func(slot []int64) bool) (n uint32, ok bool) {
	for range min(candidates, s.next) {
		n = s.pages.nth(s.hand)
		if s.hand++; s.hand >= s.next {
			s.hand = 0
		}
		if slot := m.at(n); keyIn(slot) != (stores.Key{}) && may(slot) {
			return n, true
		}
	}
	return 0, false
}

// elsewhere evicts a key of another shard if this one has hardly any: max_keys was
// lowered below what the table was made for. Shards that are in use are left out, because two of
// them have no order in which they are locked.
func (m *slots) elsewhere(s *slab, shards int, shard func(i int) *slab, evict func(i int) bool) bool {
	if s.used >= pageSlots {
		return false
	}
	for range min(othersToTry, shards) {
		i := int(m.hand.Add(1)) % shards
		if o := shard(i); o != s && o.tryEvict(func() bool { return evict(i) }) {
			return true
		}
	}
	return false
}

// tryEvict calls evict with the lock, unless the shard is in use.
func (s *slab) tryEvict(evict func() bool) bool {
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	return evict()
}

// remove removes the key in a slot.
func (m *slots) remove(s *slab, n uint32) {
	mixAt := func(n uint32) uint64 { return m.mix(keyIn(m.at(n))) }
	s.index.unlink(n, mixAt(n), mixAt)
	clear(m.at(n))
	s.free = append(s.free, n)
	s.used--
}
