package stores

import "github.com/dianalimiter/diana/algorithms"

// overflow are the counters of a shard for keys that have no room of their own.
// A group has a counter to itself as long as there are unused ones. Behind that
// it shares the one at its home with another group, and stays with it until
// nothing is owed there: whoever could leave a counter that he has charged would
// be admitted twice.
type overflow struct {
	counters [][]int64
	owners   []owner
}

// owner says whose a counter is: the group, above two flags. 0: it was never used.
type owner uint64

const (
	owned  owner = 1 << iota
	shared       // by groups that own none

	ownerShift = 2

	overflowGroups = 256 // counters of a shard
	overflowBytes  = 32  // of a counter, beside its words
)

func ownerOf(group uint32) owner { return owner(group)<<ownerShift | owned }

// find is the number of the counter where a group is or will be counted, and
// whether it has to be emptied for the group first.
func (o *overflow) find(l *layout, m *states, group uint32, rules []algorithms.Rule, now int64) (at int, fresh bool) {
	home := int(group % overflowGroups)
	if o.owners == nil {
		return home, true
	}
	// A group takes the first unused counter from its home on, and none becomes
	// unowned again: it is found before the first that was never used.
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

// counter is the shared counter by which a group is judged, nil if it owes
// nothing.
func (o *overflow) counter(l *layout, m *states, group uint32, rules []algorithms.Rule, now int64) []int64 {
	if o.owners == nil {
		return nil
	}
	if at, fresh := o.find(l, m, group, rules, now); !fresh {
		return o.counters[at]
	}
	return nil
}

// make is the shared counter that a group is charged to.
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
		m.drop(l, o.counters[at])
		clear(o.counters[at])
	}
	o.owners[at] = ownerOf(group)
	return o.counters[at]
}
