package memory

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// States returns copies of the states of a zone's key, one for each rule, or
// nil if the table has no slot for it. The tests of other stores compare their
// states with these.
func States(z *stores.ZoneCheck) []algorithms.State {
	var p location
	p.locate(z)
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	slot := p.table.find(p.shard, z.Key, p.mix)
	if slot == nil {
		return nil
	}
	all := make([]algorithms.State, len(z.Counter.Rules))
	for i := range all {
		all[i] = append(algorithms.State(nil), p.shard.states.at(&p.table.layout, slot, i)...)
	}
	return all
}

// Lost says whether Redis has reported less of a key than one of the snapshots. The tests of other
// stores look at it.
func Lost(n *Snapshots) bool {
	keys, _ := n.walk(make([]stores.Key, 0, 1), Cursor{}, func(x snapshot) bool { return x.has(markLost) })
	return len(keys) > 0
}

// Update calls change with the state of each rule of a zone's key, which has
// room for cost more. The tests of other stores charge by it what a request
// does not.
func Update(z *stores.ZoneCheck, now int64, cost func(rule int) int64, change func(rule int, s algorithms.State)) {
	var p location
	p.locate(z)
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	l, m := &p.table.layout, &p.shard.states
	p.slot = p.table.find(p.shard, z.Key, p.mix)
	p.from = p.slot
	p.ensure(z, now)
	for i, r := range z.Rules {
		m.room(l, p.from, i, r, now, cost(i))
		change(i, m.at(l, p.from, i))
	}
}
