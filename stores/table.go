package stores

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
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

// keysPerShard is how many keys make another shard worth it.
const (
	keysPerShard = 1024
	maxShards    = 256
)

var tableSerial atomic.Uint64

// NewTable returns an empty table for rules of these kinds, for at most maxKeys
// keys. With holds its keys can hold places of unanswered requests.
func NewTable(rules []algorithms.Rule, holds bool, maxKeys int64) *Table {
	n := 1
	for n < maxShards && int64(n)*keysPerShard*2 <= maxKeys {
		n *= 2
	}
	t := &Table{
		layout: newLayout(rules, holds),
		rules:  rules,
		seed:   [2]uint64{randomWord(), randomWord()},
		serial: tableSerial.Add(1),
		shards: make([]shard, n),
	}
	t.max.Store(maxKeys)
	return t
}

func randomWord() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.NativeEndian.Uint64(b[:])
}

// SetMax changes how many keys the table holds at most.
func (t *Table) SetMax(n int64) { t.max.Store(n) }

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
	perKey := int64(t.layout.stride)*8 + indexBytes
	for i, grows := range t.layout.grows {
		if grows {
			words := int64(arenaSmall)
			for words < t.rules[i].Limit() {
				words *= 2
			}
			perKey += 8 * (1 + words)
		}
	}
	if n := t.notes(); shared && n != nil {
		perKey += int64(n.stride)*8 + noteOverhead
	}
	return perKey * t.max.Load()
}

// mix spreads a key over shards and places in a way that nobody outside can
// foresee, though he may know how keys are hashed.
func (t *Table) mix(k Key) uint64 {
	hi, lo := bits.Mul64(k.Hi^t.seed[0], k.Lo^t.seed[1])
	return hi ^ lo
}

// shard is a part of a table: an index by open addressing over slots in pages.
type shard struct {
	mu       sync.Mutex
	index    []uint32 // slot + 1; 0: empty
	pages    [][]int64
	next     uint32 // slots handed out
	free     []uint32
	used     int
	hand     uint32 // where the search for forgettable keys goes on
	arena    arena
	overflow [][]int64 // shared counters, by group
	_        [64]byte  // keep the locks of two shards apart
}

const (
	pageSlots      = 64
	overflowGroups = 256
	sweep          = 64 // slots looked at to make room for one key
	minIndex       = 16
	indexBytes     = 8 // of index and pages, per key, at the most
)

func (t *Table) slot(s *shard, i uint32) []int64 {
	w := t.layout.stride
	at := int(i%pageSlots) * w
	return s.pages[i/pageSlots][at : at+w : at+w]
}

// home is where the search for a key begins.
func home(mix uint64, size int) int {
	h, _ := bits.Mul64(mix, uint64(size))
	return int(h)
}

// find returns the slot of a key, or nil.
func (t *Table) find(s *shard, k Key, mix uint64) []int64 {
	if s.used == 0 {
		return nil
	}
	for i := home(mix, len(s.index)); ; {
		n := s.index[i]
		if n == 0 {
			return nil
		}
		if slot := t.slot(s, n-1); slot[0] == int64(k.Hi) && slot[1] == int64(k.Lo) {
			return slot
		}
		if i++; i == len(s.index) {
			i = 0
		}
	}
}

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
	if (s.used+1)*8 > len(s.index)*7 {
		t.reindex(s, max(minIndex, len(s.index)+len(s.index)/4))
	}
	var n uint32
	if f := len(s.free); f > 0 {
		n = s.free[f-1]
		s.free = s.free[:f-1]
	} else {
		if n = s.next; n%pageSlots == 0 {
			s.pages = append(s.pages, make([]int64, pageSlots*t.layout.stride))
		}
		s.next++
	}
	s.used++
	slot := t.slot(s, n)
	clear(slot)
	slot[0], slot[1] = int64(k.Hi), int64(k.Lo)
	t.link(s, n, mix)
	return slot
}

func (t *Table) link(s *shard, n uint32, mix uint64) {
	i := home(mix, len(s.index))
	for s.index[i] != 0 {
		if i++; i == len(s.index) {
			i = 0
		}
	}
	s.index[i] = n + 1
}

func (t *Table) reindex(s *shard, size int) {
	old := s.index
	s.index = make([]uint32, size)
	for _, n := range old {
		if n != 0 {
			t.link(s, n-1, t.mix(t.keyOf(s, n-1)))
		}
	}
}

func (t *Table) keyOf(s *shard, n uint32) Key {
	slot := t.slot(s, n)
	return Key{uint64(slot[0]), uint64(slot[1])}
}

// evict forgets one key of the shard that is as if never seen. It looks at a
// bounded number of slots and goes on from there the next time.
func (t *Table) evict(s *shard, rules []algorithms.Rule, now int64) bool {
	for range min(sweep, s.next) {
		n := s.hand
		if s.hand++; s.hand >= s.next {
			s.hand = 0
		}
		if slot := t.slot(s, n); (slot[0] != 0 || slot[1] != 0) && t.unused(s, slot, rules, now) {
			t.remove(s, n)
			return true
		}
	}
	return false
}

// unused says whether nothing would change if the slot were forgotten.
func (t *Table) unused(s *shard, slot []int64, rules []algorithms.Rule, now int64) bool {
	if places, cost := t.layout.held(slot); places != 0 || cost != 0 {
		return false
	}
	for i, r := range rules {
		if _, reset := r.Numbers(t.state(s, slot, i), now); reset > 0 {
			return false
		}
	}
	return true
}

// remove forgets a slot. The entries behind it in the index move up, so that
// every search still ends at the first gap.
func (t *Table) remove(s *shard, n uint32) {
	i := home(t.mix(t.keyOf(s, n)), len(s.index))
	for s.index[i] != n+1 {
		i = (i + 1) % len(s.index)
	}
	for j := i; ; {
		j = (j + 1) % len(s.index)
		if s.index[j] == 0 {
			break
		}
		// An entry may move to the gap unless its search begins after the gap.
		at := home(t.mix(t.keyOf(s, s.index[j]-1)), len(s.index))
		if (j-at+len(s.index))%len(s.index) >= (j-i+len(s.index))%len(s.index) {
			s.index[i] = s.index[j]
			i = j
		}
	}
	s.index[i] = 0
	slot := t.slot(s, n)
	t.dropStates(s, slot)
	clear(slot)
	s.free = append(s.free, n)
	s.used--
	t.keys.Add(-1)
}

// state is what rule i keeps in a slot; nil is the slot of a key never seen.
func (t *Table) state(s *shard, slot []int64, i int) algorithms.State {
	if t.layout.grows[i] {
		if slot == nil {
			return never
		}
		return s.arena.state(slot[t.layout.offsets[i]])
	}
	w := t.rules[i].Words()
	if slot == nil {
		return zeros(w)
	}
	at := t.layout.offsets[i]
	return slot[at : at+w : at+w]
}

// room makes the state of a growing rule long enough for a charge.
func (t *Table) room(s *shard, slot []int64, i int, rule algorithms.Rule, now, cost int64) {
	if !t.layout.grows[i] {
		return
	}
	g := rule.(algorithms.Growing)
	ref := &slot[t.layout.offsets[i]]
	*ref = s.arena.grow(*ref, g.Need(s.arena.state(*ref), now, cost), g)
}

func (t *Table) dropStates(s *shard, slot []int64) {
	for i, grows := range t.layout.grows {
		if grows {
			s.arena.drop(slot[t.layout.offsets[i]])
		}
	}
}

// bucket is the counter that keys of a group share, nil if there is none yet.
func (t *Table) bucket(s *shard, group uint32) []int64 {
	if s.overflow == nil {
		return nil
	}
	return s.overflow[group%overflowGroups]
}

func (t *Table) makeBucket(s *shard, group uint32) []int64 {
	if s.overflow == nil {
		s.overflow = make([][]int64, overflowGroups)
	}
	b := &s.overflow[group%overflowGroups]
	if *b == nil {
		*b = make([]int64, t.layout.stride)
	}
	return *b
}

// inherit copies the states of a shared counter into a key's own slot, for the
// key may be one of those that were charged there.
func (t *Table) inherit(s *shard, slot, bucket []int64) {
	for i, grows := range t.layout.grows {
		at := t.layout.offsets[i]
		if !grows {
			copy(slot[at:at+t.rules[i].Words()], bucket[at:])
		} else if src := s.arena.state(bucket[at]); len(src) > 1 {
			slot[at] = s.arena.take(len(src))
			copy(s.arena.state(slot[at]), s.arena.state(bucket[at]))
		}
	}
}

var zeroWords [64]int64

// zeros is the state of a key never seen. Nobody writes to it.
func zeros(words int) algorithms.State {
	if words > len(zeroWords) {
		return make(algorithms.State, words)
	}
	return zeroWords[:words:words]
}
