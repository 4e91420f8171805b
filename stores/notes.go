package stores

import (
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
)

// notes keep what an instance has to know of keys in Redis to go on alone, and
// to come back: a few integers for each key beside its hash. They are never
// needed for a bound, so that one may be missing: a key without a note goes on
// from zero.
type notes struct {
	table   *Table
	offsets []int // of each rule's words
	slots   slots
	owing   atomic.Int64 // notes that say noteOwes
	shards  []noteShard  // noteShards, or as many as the table has
}

// What a note is.
const (
	noteNothing = iota // its words mean nothing
	noteKnown          // what Redis last said
	noteOwes           // the part of the local state that is not owed to Redis
)

const (
	noteShards = 64       // at the least: a table that was made for few keys may grow
	noteKind   = keyWords // where the kind stands
	noteWords  = keyWords + 1
	notesToTry = 16 // are looked at to make room for one
)

// note is {key, key, kind, words of each rule...}.
type note []int64

type noteShard struct {
	mu    sync.Mutex
	index index
	pages pages
	used  uint32
	hand  uint32 // where the search for one to give up goes on
	_     [56]byte
}

// notes returns the table's notes, nil if a rule's counts cannot be carried.
func (t *Table) notes() *notes {
	t.noted.Do(func() {
		n, stride := &notes{table: t, shards: make([]noteShard, max(noteShards, len(t.shards)))}, noteWords
		for _, r := range t.rules {
			p, ok := r.(algorithms.Portable)
			if !ok {
				return
			}
			n.offsets = append(n.offsets, stride)
			stride += p.NoteWords()
		}
		if len(t.rules) > 0 {
			n.slots.init(stride)
			t.note = n
		}
	})
	return t.note
}

// Owing says whether any key owes.
func (n *notes) Owing() bool { return n.owing.Load() != 0 }

func (n *notes) shard(mix uint64) *noteShard { return &n.shards[mix&uint64(len(n.shards)-1)] }

// words are those of one rule.
func (n *notes) words(x note, rule int) []int64 {
	if rule+1 < len(n.offsets) {
		return x[n.offsets[rule]:n.offsets[rule+1]]
	}
	return x[n.offsets[rule]:]
}

// at is a shard's i-th note.
func (n *notes) at(s *noteShard, i uint32) note { return n.slots.at(s.pages.nth(i)) }

// find returns a key's note, or nil.
func (n *notes) find(s *noteShard, k Key, mix uint64) note { return n.slots.find(&s.index, k, mix) }

// make returns a key's note, a new one if it has none, or nil if there is no
// room: what an instance owes is not given up for what it knows.
func (n *notes) make(s *noteShard, k Key, mix uint64) note {
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
	} else if i = n.giveUp(s); i == s.used {
		return nil
	}
	s.index.link(s.pages.nth(i), mix)
	x := n.at(s, i)
	clear(x)
	x[0], x[1] = int64(k.Hi), int64(k.Lo)
	return x
}

// most is how many notes a shard has at most.
func (n *notes) most() int64 { return max(1, n.table.max.Load()/int64(len(n.shards))) }

// reindex makes the index large enough for another note, in a slot up to most.
func (n *notes) reindex(s *noteShard, most uint32) {
	s.index.grow(int(s.used), uint64(len(n.shards))*uint64(n.most()+pageSlots), most)
	for i := range s.used {
		s.index.link(s.pages.nth(i), n.mixAt(s.pages.nth(i)))
	}
}

func (n *notes) mixAt(slot uint32) uint64 { return n.table.mix(note(n.slots.at(slot)).key()) }

// giveUp takes a note from its key, and returns its number, or the number of
// notes if none was found that could be.
func (n *notes) giveUp(s *noteShard) uint32 {
	for range min(notesToTry, s.used) {
		i := s.hand
		if s.hand++; s.hand >= s.used {
			s.hand = 0
		}
		if x := n.at(s, i); x[noteKind] != noteOwes {
			s.index.unlink(s.pages.nth(i), n.table.mix(x.key()), n.mixAt)
			return i
		}
	}
	return s.used
}

func (x note) key() Key { return Key{uint64(x[0]), uint64(x[1])} }

// set changes what a note is.
func (n *notes) set(x note, kind int64) {
	if x[noteKind] == noteOwes {
		n.owing.Add(-1)
	}
	if kind == noteOwes {
		n.owing.Add(1)
	}
	x[noteKind] = kind
}

// lock takes the locks of an item's counts and of its note, in this order.
func (n *notes) lock(it *Item) (p place, s *noteShard) {
	p.locate(it)
	p.shard.mu.Lock()
	s = n.shard(p.mix)
	s.mu.Lock()
	return p, s
}

// learn writes down what Redis said of an item.
func (n *notes) learn(it *Item, now int64) {
	mix := n.table.mix(it.Key)
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := n.make(s, it.Key, mix)
	if x == nil || x[noteKind] == noteOwes {
		return
	}
	for i, r := range it.Rules {
		if p, ok := r.(algorithms.Portable); ok {
			p.Note(n.words(x, i), it.Results[i].state, now)
		}
	}
	n.set(x, noteKnown)
}

// warm prepares an item for being decided alone: its own state is raised to its
// share of what was known, and from here on it owes what is charged. It reports
// whether it did not before.
func (n *notes) warm(it *Item, now int64) bool {
	p, s := n.lock(it)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x := n.make(s, it.Key, p.mix)
	if x == nil || x[noteKind] == noteOwes {
		return false
	}
	t := p.table
	if p.slot = t.find(p.shard, it.Key, p.mix); p.slot == nil {
		if p.from = p.shard.overflow.counter(&t.layout, &p.shard.states, it.Group, it.Rules, now); p.from != nil {
			return false // it will inherit what others were charged, and not owe it
		}
		if x[noteKind] == noteKnown {
			p.slot = t.insert(p.shard, it.Key, p.mix, it.Rules, now)
		}
	}
	known := x[noteKind] == noteKnown && p.slot != nil
	n.set(x, noteOwes)
	if p.slot == nil {
		clear(x[noteWords:])
		return true
	}
	for i, r := range it.Rules {
		pr, w := r.(algorithms.Portable), n.words(x, i)
		if known {
			p.shard.states.room(&t.layout, p.slot, i, r, now, pr.Room(w))
		}
		st := p.shard.states.at(&t.layout, p.slot, i)
		r.Repair(st, now)
		if known {
			pr.Warm(st, w, it.Counter.Rules[i], now)
		}
		pr.Base(w, st)
		p.shard.states.keep(&t.layout, p.slot, i, st)
	}
	return true
}

// forgive takes what an item was just charged alone out of what it owes.
func (n *notes) forgive(it *Item, now, turn int64) {
	mix := n.table.mix(it.Key)
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := n.find(s, it.Key, mix); x != nil && x[noteKind] == noteOwes {
		for i, r := range it.Rules {
			r.(algorithms.Portable).Forgive(n.words(x, i), now, it.Cost, turn)
		}
	}
}

// owed takes what a key owes out of its note, a debt for each rule, or nil if
// that is nothing.
func (n *notes) owed(it *Item, now int64) [][]int64 {
	if !n.Owing() {
		return nil
	}
	p, s := n.lock(it)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x := n.find(s, it.Key, p.mix)
	if x == nil || x[noteKind] != noteOwes {
		return nil
	}
	n.set(x, noteNothing)
	if p.slot = p.table.find(p.shard, it.Key, p.mix); p.slot == nil {
		return nil
	}
	debts, owing := make([][]int64, len(it.Rules)), false
	for i, r := range it.Rules {
		st := p.shard.states.at(&p.table.layout, p.slot, i)
		if r.Repair(st, now) {
			p.shard.states.keep(&p.table.layout, p.slot, i, st)
		}
		debt, owes := r.(algorithms.Portable).Debt(st, n.words(x, i), now)
		debts[i], owing = debt, owing || owes
	}
	if !owing {
		return nil
	}
	return debts
}

// restore makes a key owe again what owed returned, because it was not charged.
func (n *notes) restore(k Key) {
	mix := n.table.mix(k)
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := n.find(s, k, mix); x != nil && x[noteKind] == noteNothing {
		n.set(x, noteOwes)
	}
}

// debtors returns keys that owe, at most as many as fit in keys, and where to
// go on; done says that all were looked at.
func (n *notes) debtors(keys []Key, from noteCursor) (_ []Key, next noteCursor, done bool) {
	for ; from.shard < len(n.shards); from = (noteCursor{from.shard + 1, 0}) {
		s := &n.shards[from.shard]
		s.mu.Lock()
		for ; from.at < s.used && len(keys) < cap(keys); from.at++ {
			if x := n.at(s, from.at); x[noteKind] == noteOwes {
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

type noteCursor struct {
	shard int
	at    uint32
}

// drop forgets what is known of a key and what it owes.
func (n *notes) drop(k Key, mix uint64) {
	s := n.shard(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := n.find(s, k, mix); x != nil {
		n.set(x, noteNothing)
		clear(x[noteWords:])
	}
}
