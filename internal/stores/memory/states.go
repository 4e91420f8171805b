package memory

import (
	"slices"

	"github.com/dianalimiter/diana/algorithms"
)

// states is the memory of a shard that the states of its slots refer to.
type states struct {
	arena *arena // nil until a state grows
}

// at returns the state of rule i in a slot. A slot of nil is that of a key
// never seen. A state that grows is valid until room is called.
func (m *states) at(l *layout, slot []int64, i int) algorithms.State {
	r := &l.rules[i]
	switch {
	case slot == nil && r.grows:
		return never
	case slot == nil:
		return zeros(r.words)
	case r.grows:
		return m.arena.state(slot[r.at])
	}
	return slot[r.at : r.at+r.words : r.at+r.words]
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
		if r := &l.rules[i]; r.grows {
			m.arena.release(slot[r.at])
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
				to[r.at] = m.arena.allocate(len(src))
				copy(m.arena.state(to[r.at]), m.arena.state(from[r.at]))
			}
			continue
		}
		copy(to[r.at:r.at+r.words], from[r.at:])
	}
}

// unused says whether removing the slot would change no decision. The slot may have been charged by a
// clock that was set back since.
func (m *states) unused(l *layout, slot []int64, rules []algorithms.Rule, now int64) bool {
	for i, r := range rules {
		st := m.at(l, slot, i)
		r.Repair(st, now)
		if _, reset := r.Numbers(st, now); reset > 0 {
			return false
		}
	}
	return true
}

// cleared says whether a slot was reset, or made, and not charged since.
func (m *states) cleared(l *layout, slot []int64) bool {
	for i := range l.rules {
		if !isZero(m.at(l, slot, i)) {
			return false
		}
	}
	return len(l.rules) > 0
}

// isZero says whether a state is that of a key never seen.
func isZero(s algorithms.State) bool {
	return !slices.ContainsFunc(s, func(w int64) bool { return w != 0 })
}

var zeroWords [64]int64

// zeros returns the state of a key never seen. It must not be written to.
func zeros(words int) algorithms.State {
	if words > len(zeroWords) {
		return make(algorithms.State, words)
	}
	return zeroWords[:words:words]
}
