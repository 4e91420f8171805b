package memory

import (
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// Snapshots hold what an instance has to know of keys in Redis to continue
// without Redis, and to return to it: a few integers and a hash for each key.
// No bound depends on a snapshot: a key without one starts from zero.
type Snapshots struct {
	table   *Table
	offsets []int // of each rule's words
	slots   slots
	owing   atomic.Int64    // snapshots of kind snapshotOwes
	shards  []snapshotShard // snapshotShards, or as many as the table has
}

// The kinds of snapshots.
const (
	snapshotEmpty = iota // its words have no meaning
	snapshotKnown        // the state that Redis last reported
	snapshotOwes         // the part of the local state that is not owed to Redis
)

const (
	snapshotShards = 64       // at least: a table that was made for few keys may grow
	snapshotKind   = keyWords // index of the kind
	snapshotWords  = keyWords + 1
	snapshotsToTry = 16 // that evict looks at
)

// snapshot is {key, key, kind, words of each rule...}.
type snapshot []int64

type snapshotShard struct {
	mu    sync.Mutex
	index index
	pages pages
	used  uint32
	hand  uint32 // where evict goes on
	_     [56]byte
}

// Snapshots returns the table's snapshots, nil if a rule cannot be handed over.
func (t *Table) Snapshots() *Snapshots {
	t.snapshotsOnce.Do(func() {
		n, stride := &Snapshots{table: t, shards: make([]snapshotShard, max(snapshotShards, len(t.shards)))}, snapshotWords
		for _, r := range t.rules {
			p, ok := r.(algorithms.Handover)
			if !ok {
				return
			}
			n.offsets = append(n.offsets, stride)
			stride += p.SnapshotWords()
		}
		if len(t.rules) > 0 {
			n.slots.init(stride)
			t.snapshots = n
		}
	})
	return t.snapshots
}

// Owing says whether any key owes a debt.
func (n *Snapshots) Owing() bool { return n.owing.Load() != 0 }

func (n *Snapshots) shard(mix uint64) *snapshotShard { return &n.shards[mix&uint64(len(n.shards)-1)] }

// words returns the words of one rule.
func (n *Snapshots) words(x snapshot, rule int) []int64 {
	if rule+1 < len(n.offsets) {
		return x[n.offsets[rule]:n.offsets[rule+1]]
	}
	return x[n.offsets[rule]:]
}

// at returns a shard's i-th snapshot.
func (n *Snapshots) at(s *snapshotShard, i uint32) snapshot { return n.slots.at(s.pages.nth(i)) }

// find returns a key's snapshot, or nil.
func (n *Snapshots) find(s *snapshotShard, k stores.Key, mix uint64) snapshot {
	return n.slots.find(&s.index, k, mix)
}

// make returns a key's snapshot, a new one if it has none, or nil if there is
// no room: a debt is not evicted for the state of another key.
func (n *Snapshots) make(s *snapshotShard, k stores.Key, mix uint64) snapshot {
	if x := n.find(s, k, mix); x != nil {
		return x
	}
	i := s.used
	if int64(i) < n.most() {
		if i%pageSlots == 0 {
			s.pages = append(s.pages, n.slots.page())
		}
		if slot := s.pages.nth(i); !s.index.room(int(i), slot) {
			n.reindex(s, slot)
		}
		s.used++
	} else if i = n.evict(s); i == s.used {
		return nil
	}
	s.index.link(s.pages.nth(i), mix)
	x := n.at(s, i)
	clear(x)
	x[0], x[1] = int64(k.Hi), int64(k.Lo)
	return x
}

// most returns the highest number of snapshots in a shard.
func (n *Snapshots) most() int64 { return max(1, n.table.max.Load()/int64(len(n.shards))) }

// reindex makes the index large enough for another snapshot, in a slot up to
// most.
func (n *Snapshots) reindex(s *snapshotShard, most uint32) {
	s.index.grow(int(s.used), uint64(len(n.shards))*uint64(n.most()+pageSlots), most)
	for i := range s.used {
		s.index.link(s.pages.nth(i), n.mixAt(s.pages.nth(i)))
	}
}

func (n *Snapshots) mixAt(slot uint32) uint64 { return n.table.mix(snapshot(n.slots.at(slot)).key()) }

// evict removes a snapshot that is no debt and returns its index. It returns
// s.used if it found none.
func (n *Snapshots) evict(s *snapshotShard) uint32 {
	for range min(snapshotsToTry, s.used) {
		i := s.hand
		if s.hand++; s.hand >= s.used {
			s.hand = 0
		}
		if x := n.at(s, i); x[snapshotKind] != snapshotOwes {
			s.index.unlink(s.pages.nth(i), n.table.mix(x.key()), n.mixAt)
			return i
		}
	}
	return s.used
}

func (x snapshot) key() stores.Key { return stores.Key{Hi: uint64(x[0]), Lo: uint64(x[1])} }

// set changes the kind of a snapshot.
func (n *Snapshots) set(x snapshot, kind int64) {
	if x[snapshotKind] == snapshotOwes {
		n.owing.Add(-1)
	}
	if kind == snapshotOwes {
		n.owing.Add(1)
	}
	x[snapshotKind] = kind
}

// lock locks the shard of a zone's counts and that of its snapshot, in this
// order.
func (n *Snapshots) lock(z *stores.ZoneCheck) (p location, s *snapshotShard) {
	p.locate(z)
	p.shard.mu.Lock()
	s = n.shard(p.mix)
	s.mu.Lock()
	return p, s
}

// Learn records what Redis reported for a zone.
func (n *Snapshots) Learn(z *stores.ZoneCheck, now int64) {
	mix := n.table.mix(z.Key)
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := n.make(s, z.Key, mix)
	if x == nil || x[snapshotKind] == snapshotOwes {
		return
	}
	for i, r := range z.Rules {
		if p, ok := r.(algorithms.Handover); ok {
			p.Snapshot(n.words(x, i), z.Results[i].State, now)
		}
	}
	n.set(x, snapshotKnown)
}

// Warm prepares a zone for being decided without Redis: its local state is
// raised to this instance's share of the last known state, and what is charged
// from then on is owed to Redis. It reports whether the key starts to owe.
func (n *Snapshots) Warm(z *stores.ZoneCheck, now int64) bool {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x := n.make(s, z.Key, p.mix)
	if x == nil || x[snapshotKind] == snapshotOwes {
		return false
	}
	t := p.table
	if p.slot = t.find(p.shard, z.Key, p.mix); p.slot == nil {
		if p.from = p.shard.overflow.counter(&t.layout, &p.shard.states, z.Group, z.Rules, now); p.from != nil {
			return false // the key will inherit the shared counter, which it does not owe
		}
		if x[snapshotKind] == snapshotKnown {
			p.slot = t.insert(p.shard, z.Key, p.mix, z.Rules, now)
		}
	}
	known := x[snapshotKind] == snapshotKnown && p.slot != nil
	n.set(x, snapshotOwes)
	if p.slot == nil {
		clear(x[snapshotWords:])
		return true
	}
	for i, r := range z.Rules {
		pr, w := r.(algorithms.Handover), n.words(x, i)
		if known {
			p.shard.states.room(&t.layout, p.slot, i, r, now, pr.Room(w))
		}
		st := p.shard.states.at(&t.layout, p.slot, i)
		r.Repair(st, now)
		if known {
			pr.Warm(st, w, z.Counter.Rules[i], now)
		}
		pr.Base(w, st)
		p.shard.states.keep(&t.layout, p.slot, i, st)
	}
	return true
}

// Forgive reduces the debt of a zone's key by what it was just charged, of which no
// rule takes more than two capacities.
func (n *Snapshots) Forgive(z *stores.ZoneCheck, now, turn int64) {
	mix := n.table.mix(z.Key)
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := n.find(s, z.Key, mix); x != nil && x[snapshotKind] == snapshotOwes {
		for i, r := range z.Rules {
			r.(algorithms.Handover).Forgive(n.words(x, i), now, min(z.Cost, 2*r.Capacity()), turn)
		}
	}
}

// Owed takes the debt of a zone's key out of its snapshot, in words for each
// rule. It returns nil if there is none.
func (n *Snapshots) Owed(z *stores.ZoneCheck, now int64) [][]int64 {
	if !n.Owing() {
		return nil
	}
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x := n.find(s, z.Key, p.mix)
	if x == nil || x[snapshotKind] != snapshotOwes {
		return nil
	}
	n.set(x, snapshotEmpty)
	if p.slot = p.table.find(p.shard, z.Key, p.mix); p.slot == nil {
		return nil
	}
	debts, owing := make([][]int64, len(z.Rules)), false
	for i, r := range z.Rules {
		st := p.shard.states.at(&p.table.layout, p.slot, i)
		if r.Repair(st, now) {
			p.shard.states.keep(&p.table.layout, p.slot, i, st)
		}
		debt, owes := r.(algorithms.Handover).Debt(st, n.words(x, i), now)
		debts[i], owing = debt, owing || owes
	}
	if !owing {
		return nil
	}
	return debts
}

// Restore restores a debt that [Snapshots.Owed] returned and that was not
// charged.
func (n *Snapshots) Restore(k stores.Key) {
	mix := n.table.mix(k)
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := n.find(s, k, mix); x != nil && x[snapshotKind] == snapshotEmpty {
		n.set(x, snapshotOwes)
	}
}

// Debtors appends keys with a debt to keys, up to its capacity, and returns
// where to continue. done says that there are no more.
func (n *Snapshots) Debtors(keys []stores.Key, from Cursor) (_ []stores.Key, next Cursor, done bool) {
	for ; from.shard < len(n.shards); from = (Cursor{from.shard + 1, 0}) {
		s := &n.shards[from.shard]
		s.mu.Lock()
		for ; from.at < s.used && len(keys) < cap(keys); from.at++ {
			if x := n.at(s, from.at); x[snapshotKind] == snapshotOwes {
				keys = append(keys, x.key())
			}
		}
		more := from.at < s.used
		s.mu.Unlock()
		if more {
			return keys, from, false
		}
	}
	return keys, from, true
}

// Cursor is how far a walk over the snapshots has come.
type Cursor struct {
	shard int
	at    uint32
}

// reset clears a key's snapshot and its debt.
func (n *Snapshots) reset(k stores.Key, mix uint64) {
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := n.find(s, k, mix); x != nil {
		n.set(x, snapshotEmpty)
		clear(x[snapshotWords:])
	}
}
