package stores

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
)

// Table keeps the counts of one set of rules in this process, in shards, each
// behind its own lock. What it holds of a key is a few integers beside a hash:
// no pointers and no text.
//
// It never forgets a key whose rules are not as if unused. When it is full of
// such keys, new ones share counters by Group, which may deny too early, and
// never admit too much.
type Table struct {
	layout layout
	slots  slots
	rules  []algorithms.Rule // any with the table's kinds, for their layout
	max    atomic.Int64
	keys   atomic.Int64
	shared atomic.Uint64 // charges that went to shared counters
	steps  atomic.Uint64 // states mended after a step of the clock
	seed   [2]uint64
	serial uint64 // orders the locks of several tables
	shards []shard
	noted  sync.Once
	note   *notes // see notes
}

// tableOf returns a counter's table. The stores of this module have no other kind.
func tableOf(c *Counter) *Table {
	return c.Table.(*Table) //nolint:forcetypeassert // see above
}

// oneShard is below how many keys a table has a single shard.
const (
	oneShard  = 2048
	maxShards = 1024
)

var tableSerial atomic.Uint64

// NewTable returns an empty table for rules of these kinds, for at most maxKeys
// keys. With holds its keys can hold places of unanswered requests.
func NewTable(rules []algorithms.Rule, holds bool, maxKeys int64) *Table {
	t := &Table{
		layout: newLayout(rules, holds),
		rules:  rules,
		seed:   [2]uint64{randomWord(), randomWord()},
		serial: tableSerial.Add(1),
		shards: make([]shard, shardsFor(maxKeys)),
	}
	t.slots.init(t.layout.stride)
	for i := range t.shards {
		t.shards[i].states.init(&t.layout)
	}
	t.SetMax(maxKeys)
	return t
}

// shardsFor is the number of shards, a power of two: more for more keys, so that
// requests seldom meet, and so that none waits long for a shard to grow.
func shardsFor(maxKeys int64) int64 {
	n := int64(1)
	for maxKeys >= oneShard && n < maxShards && 16*n*n <= maxKeys {
		n *= 2
	}
	return n
}

func randomWord() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// SetMax changes how many keys the table holds at most.
func (t *Table) SetMax(n int64) { t.max.Store(min(n, maxSlots)) }

// Keys is how many keys the table holds.
func (t *Table) Keys() int64 { return t.keys.Load() }

// Overflows is how many charges went to counters that several keys share.
func (t *Table) Overflows() uint64 { return t.shared.Load() }

// Steps is how many states were mended after a step of the clock.
func (t *Table) Steps() uint64 { return t.steps.Load() }

// Destruct implements caddy.Destructor: a table needs no closing.
func (t *Table) Destruct() error { return nil }

// Memory is the most bytes that the table can take for its keys. One whose keys
// are counted in Redis also has a note of each.
func (t *Table) Memory(shared bool) int64 {
	perKey := t.slots.bytes() + indexBytes
	for i, l := range t.layout.rules {
		if l.grows {
			words := int64(arenaSmall)
			for words < t.rules[i].Limit() {
				words *= 2
			}
			perKey += 8 * (1 + words)
		}
	}
	begun := t.slots.begun(len(t.shards))
	if shared {
		if n := t.notes(); n != nil {
			perKey += n.slots.bytes() + indexBytes
			begun += n.slots.begun(len(n.shards))
		}
	}
	counters := int64(len(t.shards)) * overflowGroups * (perKey + overflowBytes)
	return counters + perKey*t.max.Load() + begun
}

// mix spreads a key over shards and places in a way that nobody outside can
// foresee, though he may know how keys are hashed.
func (t *Table) mix(k Key) uint64 {
	hi, lo := bits.Mul64(k.Hi^t.seed[0], k.Lo^t.seed[1])
	return hi ^ lo
}

// shard is a part of a table.
//
// What every decision needs comes first, in two cache lines: a shard is seldom in
// the processor's cache, least of all when another processor was there last.
type shard struct {
	mu     sync.Mutex
	index  index
	used   int
	states states

	pages    pages
	next     uint32 // slots handed out
	free     []uint32
	hand     uint32 // where the search for forgettable keys goes on
	overflow overflow
	_        [48]byte // keep two shards apart, and each at the beginning of a line
}

const (
	sweep      = 64 // slots looked at to make room for one key
	indexBytes = 8  // of index and page numbers, per key, at the most
)

// find returns the slot of a key, or nil.
func (t *Table) find(s *shard, k Key, mix uint64) []int64 { return t.slots.find(&s.index, k, mix) }

// insert returns a new slot for a key that is not in the table, or nil if there
// is no room.
func (t *Table) insert(s *shard, k Key, mix uint64, rules []algorithms.Rule, now int64) []int64 {
	if t.keys.Add(1) > t.max.Load() {
		t.keys.Add(-1)
		if !t.evict(s, rules, now) {
			return nil
		}
		t.keys.Add(1)
	}
	n := t.take(s)
	if !s.index.room(s.used, n) {
		t.reindex(s, n)
	}
	s.used++
	slot := t.slots.at(n)
	slot[0], slot[1] = int64(k.Hi), int64(k.Lo)
	s.index.link(n, mix)
	return slot
}

// take returns the number of an unused slot, whose words are all zero.
func (t *Table) take(s *shard) uint32 {
	if f := len(s.free); f > 0 {
		n := s.free[f-1]
		s.free = s.free[:f-1]
		return n
	}
	if s.next%pageSlots == 0 {
		s.pages = append(s.pages, t.slots.page())
	}
	s.next++
	return s.pages.nth(s.next - 1)
}

// reindex makes the index large enough for another key, in a slot up to most.
// It goes through the slots in the order in which they lie, which is much faster
// than in the order of the old index.
func (t *Table) reindex(s *shard, most uint32) {
	s.index.grow(s.used, uint64(t.max.Load())+uint64(len(t.shards))*pageSlots, most)
	for i := range s.next {
		n := s.pages.nth(i)
		if k := t.keyOf(n); k != (Key{}) {
			s.index.link(n, t.mix(k))
		}
	}
}

// keyOf is the key in a slot, zero if there is none.
func (t *Table) keyOf(n uint32) Key {
	slot := t.slots.at(n)
	return Key{uint64(slot[0]), uint64(slot[1])}
}

// evict forgets one key of the shard that is as if never seen. It looks at a
// bounded number of slots and goes on from there the next time.
func (t *Table) evict(s *shard, rules []algorithms.Rule, now int64) bool {
	for range min(sweep, s.next) {
		n := s.pages.nth(s.hand)
		if s.hand++; s.hand >= s.next {
			s.hand = 0
		}
		if t.keyOf(n) != (Key{}) && s.states.unused(&t.layout, t.slots.at(n), rules, now) {
			t.remove(s, n)
			return true
		}
	}
	return false
}

// remove forgets a slot.
func (t *Table) remove(s *shard, n uint32) {
	s.index.unlink(n, t.mix(t.keyOf(n)), func(n uint32) uint64 { return t.mix(t.keyOf(n)) })
	slot := t.slots.at(n)
	s.states.drop(&t.layout, slot)
	clear(slot)
	s.free = append(s.free, n)
	s.used--
	t.keys.Add(-1)
}

// drop forgets the states of a key, and what is noted of it. Its slot stays, for
// it may hold places, and is soon another's.
func (t *Table) drop(k Key) {
	mix := t.mix(k)
	s := &t.shards[mix&uint64(len(t.shards)-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot := t.find(s, k, mix); slot != nil {
		for i := range t.layout.rules {
			if st := s.states.at(&t.layout, slot, i); slices.ContainsFunc(st, func(w int64) bool { return w != 0 }) {
				clear(st) // one of zeros may be shared
				s.states.keep(&t.layout, slot, i, st)
			}
		}
	}
	if n := t.notes(); n != nil {
		n.drop(k, mix)
	}
}
