package memory

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Table counts one set of rules in this process, in shards that each have a
// lock. It stores a few integers and a hash per key, no pointers and no text.
//
// It never removes a key whose rules are not in their initial state. When it is
// full of such keys, new keys share counters by Group, which may deny too early
// but never admits too much. Those of a counter with OwnSlots are not counted.
type Table struct {
	layout        layout
	slots         slots
	rules         []algorithms.Rule // with the table's kinds, for their layout
	max           atomic.Int64
	reserved      atomic.Int64 // of max, for keys of overrides
	keys          atomic.Int64
	known         atomic.Int64 // snapshots
	held          atomic.Int64 // cost that requests hold instead of charging it
	alone         bool         // see NewLocalTable
	tagged        bool         // see KeepTags
	serial        uint64       // the order in which several tables are locked
	shards        []shard
	replaced      atomic.Bool // no zone counts in it any more
	snapshotsOnce sync.Once
	snapshots     *Snapshots // see Snapshots
}

// TableOf returns a counter's table. There is no other implementation of
// [stores.Table].
func TableOf(c *stores.Counter) *Table {
	return c.Table.(*Table) //nolint:forcetypeassert // see above
}

// A table for fewer than oneShard keys has a single shard.
const (
	oneShard  = 2048
	maxShards = 1024
)

var tableSerial atomic.Uint64

// NewTable returns an empty table for rules of these kinds and at most maxKeys
// keys.
func NewTable(rules []algorithms.Rule, maxKeys int64) *Table {
	return newTable(rules, maxKeys, slotWords)
}

// NewLocalTable returns a table of keys of which Redis is told nothing: it has no snapshots, and its keys
// owe nothing.
func NewLocalTable(rules []algorithms.Rule, maxKeys int64) *Table {
	t := newTable(rules, maxKeys, keyWords)
	t.alone = true
	return t
}

// newTable returns a table whose slots have some words before those of the rules.
func newTable(rules []algorithms.Rule, maxKeys int64, words int) *Table {
	t := &Table{
		layout: newLayout(rules, words),
		rules:  rules,
		serial: tableSerial.Add(1),
		shards: make([]shard, shardsFor(maxKeys)),
	}
	t.slots.init(t.layout.stride, [2]uint64{randomWord(), randomWord()})
	t.SetMax(maxKeys, 0)
	return t
}

// shardsFor returns the number of shards, a power of two. It grows with the
// number of keys, so that requests rarely contend for a lock, and that none
// waits long for a shard's index to grow.
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

// SetMax changes the highest number of keys. In addition there is room for reserved keys of
// overrides: a flood of other keys does not take it.
func (t *Table) SetMax(keys, reserved int64) {
	t.max.Store(min(keys+reserved, maxSlots))
	t.reserved.Store(reserved)
}

// KeepTags makes the snapshots have the tags of their keys, without which the name of what is
// counted in addition to a zone's key is not known. It must precede the table's use.
func (t *Table) KeepTags() { t.tagged = true }

// Tagged says whether the tag of a zone's key is known from its snapshot.
func (t *Table) Tagged(z *stores.ZoneCheck) bool { return t.tagged || z.Tag == z.Key }

// Keys returns the number of keys of which the table knows something: states, or a
// snapshot. A key with a state that began without Redis mostly has both.
func (t *Table) Keys() int64 { return max(t.keys.Load(), t.known.Load()) }

// Destruct implements caddy.Destructor. No zone counts in the table any more.
func (t *Table) Destruct() error {
	t.replaced.Store(true)
	return nil
}

// Counted says whether a zone counts in the table, so that what its keys owe to Redis is of use
// there.
func (t *Table) Counted() bool { return !t.replaced.Load() }

// Shared reports whether Redis counts the keys, and the table only while that is away.
func (t *Table) Shared() bool { return !t.alone }

// Memory returns the most bytes that the table's keys can take under these limits, keys of
// overrides under others. It includes a snapshot of each key of which Redis is told.
func (t *Table) Memory(limits, reserved []int64) int64 {
	perKey := t.slots.bytes() + indexBytes
	logs, longer := t.logBytes(limits), t.logBytes(reserved)
	begun := t.slots.begun(len(t.shards))
	if n := t.Snapshots(); n != nil {
		perKey += n.slots.bytes() + indexBytes
		begun += n.slots.begun(len(n.shard))
	}
	counters := int64(len(t.shards)) * overflowGroups * (perKey + max(logs, longer) + overflowBytes)
	return counters + (perKey+logs)*t.max.Load() + (longer-logs)*t.reserved.Load() + begun
}

// logBytes returns the most bytes that the states of a key which grow take under these limits.
func (t *Table) logBytes(limits []int64) (n int64) {
	for i, limit := range limits {
		if t.layout.rules[i].grows {
			words := int64(arenaSmall)
			for words < limit {
				words *= 2
			}
			n += 8 * (1 + words)
		}
	}
	return n
}

// shard is a part of a table.
//
// What every decision reads comes first, in two cache lines: a shard is rarely
// in the processor's cache, least of all after another processor used it.
type shard struct {
	states states
	slab
	overflow overflow
	_        [24]byte // pads a shard to whole cache lines
}

// indexBytes are those of index and page numbers, per key, at most.
const indexBytes = 8

// all returns the highest number of slots to be expected.
func (t *Table) all() uint64 { return uint64(t.max.Load()) + uint64(len(t.shards))*pageSlots }

// find returns the slot of a key, or nil.
func (t *Table) find(s *shard, k stores.Key, mix uint64) []int64 {
	return t.slots.find(&s.index, k, mix)
}

// insert returns a new slot for a key that is not in the table, or nil if there
// is no room. The key of an override may take what is reserved.
func (t *Table) insert(s *shard, z *stores.ZoneCheck, mix uint64, now int64) []int64 {
	room := t.max.Load()
	if z.Counter.Override == 0 {
		room -= t.reserved.Load()
	}
	if t.keys.Add(1) > room {
		t.keys.Add(-1)
		shard, evict := func(i int) *slab { return &t.shards[i].slab }, func(i int) bool { return t.evict(&t.shards[i], z, now) }
		if !t.evict(s, z, now) && !t.slots.elsewhere(&s.slab, len(t.shards), shard, evict) {
			return nil
		}
		t.keys.Add(1)
	}
	return t.slots.insert(&s.slab, z.Key, mix, t.all())
}

// evict removes one key of the shard that is in its initial state, or will be before its block
// ends.
func (t *Table) evict(s *shard, z *stores.ZoneCheck, now int64) bool {
	var blocks *Blocks
	if z.StartsBlock {
		blocks = BlocksOf(z.Counter)
	}
	n, ok := t.slots.evictable(&s.slab, func(slot []int64) bool {
		at := now
		if b, ok := blocks.Find(keyIn(slot), now); ok {
			at = b.Until
		}
		return s.states.unused(&t.layout, slot, z.Rules, at)
	})
	if ok {
		t.remove(s, n)
	}
	return ok
}

// remove removes the key in a slot.
func (t *Table) remove(s *shard, n uint32) {
	s.states.release(&t.layout, t.slots.at(n))
	t.slots.remove(&s.slab, n)
	t.keys.Add(-1)
}

// Reset clears the states, the debt and the snapshot of a key. Its slot remains until evict
// removes it. Permits in use remain, too.
func (t *Table) Reset(k stores.Key) {
	mix := t.slots.mix(k)
	s := &t.shards[mix&uint64(len(t.shards)-1)]
	s.mu.Lock()
	defer s.mu.Unlock()
	t.clear(s, t.find(s, k, mix))
	if n := t.Snapshots(); n != nil {
		known, x := n.lockKey(k)
		defer known.mu.Unlock()
		x.reset()
	}
}

// clear clears the states and the debt of a slot, if there is one.
func (t *Table) clear(s *shard, slot []int64) {
	if slot == nil {
		return
	}
	for i := range t.layout.rules {
		if st := s.states.at(&t.layout, slot, i); !isZero(st) {
			clear(st) // a zero state may be shared
		}
	}
	if !t.alone {
		slot[slotOwed] = 0
	}
}
