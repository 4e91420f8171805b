package memory

import "github.com/dianalimiter/diana/algorithms"

// states is the memory of a shard that the states of its slots refer to.
type states struct {
	scratch algorithms.State   // where paired states are unpacked
	first   [pairedWords]int64 // the scratch of a table with one rule
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

// at returns the state of rule i in a slot. A slot of nil is that of a key
// never seen. The state is valid until at is called for that rule again. A
// caller that changes it calls keep.
func (m *states) at(l *layout, slot []int64, i int) algorithms.State {
	r := &l.rules[i]
	switch {
	case r.paired && slot != nil:
		ref := uint64(slot[r.at+1])
		words := m.pairs.words(uint32(ref >> 32))
		st := (*[pairedWords]int64)(m.scratch[i*pairedWords:])
		st[0], st[1], st[2], st[3] = slot[r.at], int64(uint32(ref)), words.first, words.second
		return st[:]
	case r.grows && slot == nil:
		return never
	case r.grows:
		return m.arena.state(slot[r.at])
	case slot == nil:
		return zeros(r.full)
	}
	return slot[r.at : r.at+r.words : r.at+r.words]
}

// keep stores the state of rule i that at returned, after a change.
func (m *states) keep(l *layout, slot []int64, i int, st algorithms.State) {
	if r := &l.rules[i]; r.paired {
		id := uint32(uint64(slot[r.at+1]) >> 32)
		if now := (ending{st[2], st[3]}); m.pairs.words(id) != now {
			id = m.pairs.change(id, now)
		}
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

// release frees what the states of a slot refer to.
func (m *states) release(l *layout, slot []int64) {
	for i := range l.rules {
		switch r := &l.rules[i]; {
		case r.grows:
			m.arena.release(slot[r.at])
		case r.paired:
			m.pairs.release(uint32(uint64(slot[r.at+1]) >> 32))
		}
	}
}

// copy copies the states of a shared counter into a key's new slot, because the
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
			m.pairs.retain(uint32(uint64(to[r.at+1]) >> 32))
		}
	}
}

// unused says whether removing the slot would change no decision.
func (m *states) unused(l *layout, slot []int64, rules []algorithms.Rule, now int64) bool {
	for i, r := range rules {
		if _, reset := r.Numbers(m.at(l, slot, i), now); reset > 0 {
			return false
		}
	}
	return true
}

var zeroWords [64]int64

// zeros returns the state of a key never seen. It must not be written to.
func zeros(words int) algorithms.State {
	if words > len(zeroWords) {
		return make(algorithms.State, words)
	}
	return zeroWords[:words:words]
}
