package stores

import "github.com/dianalimiter/diana/algorithms"

// What the tests of other stores read and change to compare their states with
// those of a table.

// States returns copies of the states of an item's key, one for each rule, nil
// if the table has no slot for it.
func States(it *Item) []algorithms.State {
	var p place
	p.locate(it)
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	slot := p.table.find(p.shard, it.Key, p.mix)
	if slot == nil {
		return nil
	}
	all := make([]algorithms.State, len(it.Counter.Rules))
	for i := range all {
		all[i] = append(algorithms.State(nil), p.shard.states.at(&p.table.layout, slot, i)...)
	}
	return all
}

// Update has change alter the states of an item's key, each of which has room
// for cost more.
func Update(it *Item, now int64, cost func(rule int) int64, change func(rule int, s algorithms.State)) {
	var p place
	p.locate(it)
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	l, m := &p.table.layout, &p.shard.states
	p.slot = p.table.find(p.shard, it.Key, p.mix)
	p.from = p.slot
	p.own(it, now)
	for i, r := range it.Rules {
		m.room(l, p.from, i, r, now, cost(i))
		s := m.at(l, p.from, i)
		change(i, s)
		m.keep(l, p.from, i, s)
	}
}
