package stores

import "github.com/dianalimiter/diana/algorithms"

// states is the memory of a shard beside its slots: what the states of its slots
// refer to.
type states struct {
	scratch algorithms.State   // room for paired states
	first   [pairedWords]int64 // the scratch of a single rule
	pairs   pairs
	arena   *arena // nil until a state grows
}

func (m *states) init(l *layout) {
	switch {
	case !l.paired:
	case len(l.rules) == 1:
		m.scratch = m.first[:]
	default:
		m.scratch = make(algorithms.State, pairedWords*len(l.rules))
	}
}

// state is what rule i keeps in a slot; nil is the slot of a key never seen. It
// is good until the shard is asked for that rule's state in another slot. Who
// changes it says so with keep.
func (m *states) at(l *layout, slot []int64, i int) algorithms.State {
	r := &l.rules[i]
	switch {
	case r.grows && slot == nil:
		return never
	case r.grows:
		return m.arena.state(slot[r.at])
	case slot == nil:
		return zeros(r.full)
	case r.paired:
		ref := uint64(slot[r.at+1])
		words := m.pairs.words(uint32(ref >> 32))
		st := m.scratch[i*pairedWords : (i+1)*pairedWords : (i+1)*pairedWords]
		st[0], st[1], st[2], st[3] = slot[r.at], int64(uint32(ref)), words.first, words.second
		return st
	}
	return slot[r.at : r.at+r.words : r.at+r.words]
}

// keep stores the state of rule i, which state returned and which was changed.
func (m *states) keep(l *layout, slot []int64, i int, st algorithms.State) {
	if r := &l.rules[i]; r.paired {
		was := uint32(uint64(slot[r.at+1]) >> 32)
		id := m.pairs.change(was, ending{st[2], st[3]})
		slot[r.at], slot[r.at+1] = st[0], int64(uint64(id)<<32|uint64(st[1]))
	}
}

// room makes the state of a growing rule long enough for a charge.
func (m *states) room(l *layout, slot []int64, i int, rule algorithms.Rule, now, cost int64) {
	if r := &l.rules[i]; r.grows {
		g := rule.(algorithms.Growing)
		ref := &slot[r.at]
		if m.arena == nil { // an idle table has none: a thousand zones would take hundreds of megabytes
			m.arena = new(arena)
		}
		*ref = m.arena.grow(*ref, g.Need(m.arena.state(*ref), now, cost), g)
	}
}

// dropStates gives back what the states of a slot have elsewhere.
func (m *states) drop(l *layout, slot []int64) {
	for i := range l.rules {
		switch r := &l.rules[i]; {
		case r.grows:
			m.arena.drop(slot[r.at])
		case r.paired:
			m.pairs.drop(uint32(uint64(slot[r.at+1]) >> 32))
		}
	}
}

// inherit copies the states of a shared counter into a key's new slot, for the
// key may be one of those that were charged there.
func (m *states) copy(l *layout, to, from []int64) {
	for i := range l.rules {
		r := &l.rules[i]
		if r.grows {
			if src := m.arena.state(from[r.at]); len(src) > 1 {
				to[r.at] = m.arena.take(len(src))
				copy(m.arena.state(to[r.at]), m.arena.state(from[r.at]))
			}
			continue
		}
		copy(to[r.at:r.at+r.words], from[r.at:])
		if r.paired {
			m.pairs.use(uint32(uint64(to[r.at+1]) >> 32))
		}
	}
}

// unused says whether nothing would change if the slot were forgotten.
func (m *states) unused(l *layout, slot []int64, rules []algorithms.Rule, now int64) bool {
	if places, cost := l.held(slot); places != 0 || cost != 0 {
		return false
	}
	for i, r := range rules {
		if _, reset := r.Numbers(m.at(l, slot, i), now); reset > 0 {
			return false
		}
	}
	return true
}

var zeroWords [64]int64

// zeros is the state of a key never seen. Nobody writes to it.
func zeros(words int) algorithms.State {
	if words > len(zeroWords) {
		return make(algorithms.State, words)
	}
	return zeroWords[:words:words]
}
