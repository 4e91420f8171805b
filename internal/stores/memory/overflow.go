package memory

import "github.com/dianalimiter/diana/algorithms"

// overflow holds the counters of a shard for keys that find no slot. A group of
// keys has a counter of its own as long as there are unused ones. After that it
// shares the counter at its home with another group until that counter is
// unused: a group that could leave a counter that it has charged would be
// admitted twice.
type overflow struct {
	counters [][]int64
	owners   []owner
}

// owner identifies the group that owns a counter, above two flags. 0: the
// counter was never used.
type owner uint64

const (
	owned  owner = 1 << iota
	shared       // also used by groups that own none

	ownerShift = 2

	overflowGroups = 256 // counters of a shard
	overflowBytes  = 32  // of a counter, in addition to its words
)

func ownerOf(group uint32) owner { return owner(group)<<ownerShift | owned }

// find returns the index of the counter where a group is or will be counted,
// and whether it has to be cleared for the group first.
func (o *overflow) find(l *layout, m *states, group uint32, rules []algorithms.Rule, now int64) (at int, fresh bool) {
	home := int(group % overflowGroups)
	if o.owners == nil {
		return home, true
	}
	// A group takes the first unused counter from its home on, and no counter
	// loses its owner: the group's counter lies before the first that was never
	// used.
	unused := func(i int) bool {
		return o.owners[i] == 0 || m.unused(l, o.counters[i], rules, now)
	}
	for n := range overflowGroups {
		i := (home + n) % overflowGroups
		by := o.owners[i]
		if by == 0 {
			break
		}
		if by&^shared == ownerOf(group) {
			return i, false
		}
	}
	if unused(home) {
		return home, true
	}
	if o.owners[home]&shared == 0 {
		for n := range overflowGroups - 1 {
			if i := (home + 1 + n) % overflowGroups; unused(i) {
				return i, true
			}
		}
		o.owners[home] |= shared
	}
	return home, false
}

// counter returns the shared counter that decides for a group, nil if nothing
// is charged to it.
func (o *overflow) counter(l *layout, m *states, group uint32, rules []algorithms.Rule, now int64) []int64 {
	if o.owners == nil {
		return nil
	}
	if at, fresh := o.find(l, m, group, rules, now); !fresh {
		return o.counters[at]
	}
	return nil
}

// make returns the shared counter that a group is charged to, and creates it if
// necessary.
func (o *overflow) make(l *layout, m *states, group uint32, rules []algorithms.Rule, now int64) []int64 {
	at, fresh := o.find(l, m, group, rules, now)
	if o.owners == nil {
		o.owners = make([]owner, overflowGroups)
		o.counters = make([][]int64, overflowGroups)
	}
	if !fresh {
		return o.counters[at]
	}
	if o.counters[at] == nil {
		o.counters[at] = make([]int64, l.stride)
	} else {
		m.release(l, o.counters[at])
		clear(o.counters[at])
	}
	o.owners[at] = ownerOf(group)
	return o.counters[at]
}
