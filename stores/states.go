package stores

import "github.com/dianalimiter/diana/algorithms"

// state is what rule i keeps in a slot; nil is the slot of a key never seen. It
// is good until the shard is asked for that rule's state in another slot. Who
// changes it says so with keep.
func (t *Table) state(s *shard, slot []int64, i int) algorithms.State {
	l := &t.layout.rules[i]
	switch {
	case l.grows && slot == nil:
		return never
	case l.grows:
		return s.arena.state(slot[l.at])
	case slot == nil:
		return zeros(t.rules[i].Words())
	case l.paired:
		ref := uint64(slot[l.at+1])
		words := s.pairs.words(uint32(ref >> 32))
		st := s.scratch[i*pairedWords : (i+1)*pairedWords : (i+1)*pairedWords]
		st[0], st[1], st[2], st[3] = slot[l.at], int64(uint32(ref)), words.first, words.second
		return st
	}
	return slot[l.at : l.at+l.words : l.at+l.words]
}

// keep stores the state of rule i, which state returned and which was changed.
func (t *Table) keep(s *shard, slot []int64, i int, st algorithms.State) {
	if l := &t.layout.rules[i]; l.paired {
		was := uint32(uint64(slot[l.at+1]) >> 32)
		id := s.pairs.change(was, ending{st[2], st[3]})
		slot[l.at], slot[l.at+1] = st[0], int64(uint64(id)<<32|uint64(st[1]))
	}
}

// room makes the state of a growing rule long enough for a charge.
func (t *Table) room(s *shard, slot []int64, i int, rule algorithms.Rule, now, cost int64) {
	if l := &t.layout.rules[i]; l.grows {
		g := rule.(algorithms.Growing)
		ref := &slot[l.at]
		if s.arena == nil { // an idle table has none: a thousand zones would take hundreds of megabytes
			s.arena = new(arena)
		}
		*ref = s.arena.grow(*ref, g.Need(s.arena.state(*ref), now, cost), g)
	}
}

// dropStates gives back what the states of a slot have elsewhere.
func (t *Table) dropStates(s *shard, slot []int64) {
	for i := range t.layout.rules {
		switch l := &t.layout.rules[i]; {
		case l.grows:
			s.arena.drop(slot[l.at])
		case l.paired:
			s.pairs.drop(uint32(uint64(slot[l.at+1]) >> 32))
		}
	}
}

// inherit copies the states of a shared counter into a key's new slot, for the
// key may be one of those that were charged there.
func (t *Table) inherit(s *shard, slot, bucket []int64) {
	for i := range t.layout.rules {
		l := &t.layout.rules[i]
		if l.grows {
			if src := s.arena.state(bucket[l.at]); len(src) > 1 {
				slot[l.at] = s.arena.take(len(src))
				copy(s.arena.state(slot[l.at]), s.arena.state(bucket[l.at]))
			}
			continue
		}
		copy(slot[l.at:l.at+l.words], bucket[l.at:])
		if l.paired {
			s.pairs.use(uint32(uint64(slot[l.at+1]) >> 32))
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
