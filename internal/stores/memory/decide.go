// Package memory counts in this process: a sharded table without pointers, the
// decision in it, and the snapshots of what Redis last reported, by which an
// instance continues without Redis.
package memory

import (
	"context"
	"slices"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// Store counts in this process.
type Store struct {
	// Clock returns the current time in microseconds. It never goes back.
	Clock func() int64
}

// Decide implements [stores.Store].
func (l *Store) Decide(_ context.Context, check *stores.Check) {
	for i := range check.Zones {
		check.Zones[i].Rules = check.Zones[i].Counter.Rules
	}
	check.Mode = stores.ModeLocal
	Decide(check, l.Clock)
}

// Finish implements [stores.Store].
func (l *Store) Finish(_ context.Context, z *stores.ZoneCheck, charge int64) {
	Finish(z, l.Clock, charge)
}

// location is where a zone's key is counted in its table.
type location struct {
	table *Table
	shard *shard
	at    int // number of the shard
	mix   uint64
	slot  []int64 // the key's own; nil: none yet
	from  []int64 // what the decision reads: the key's slot, a shared counter, or nil

	// only is the state of the slot's only rule while no other key of the
	// shard can have been looked up. nil: look it up again.
	only algorithms.State
}

// Decide decides by the tables of the zones' counters, with the zones' Rules.
// All tables are locked together, always in the same order, so that the
// decision is made at one instant. The clock is read while the locks are held:
// if it were read before, it would appear to go back whenever two requests
// overtake each other.
func Decide(check *stores.Check, clock func() int64) {
	check.ResetResults()
	if len(check.Zones) == 1 { // the most frequent case
		z := &check.Zones[0]
		var p location
		p.locate(z)
		p.shard.mu.Lock()
		check.Now = clock()
		p.judge(z, check.Now)
		check.Settle()
		p.apply(check, z)
		p.shard.mu.Unlock()
		return
	}
	decideSeveral(check, clock)
}

// decideSeveral decides a check of several zones. It is a function of its own
// so that a check of one zone does not need its stack.
func decideSeveral(check *stores.Check, clock func() int64) {
	var room [8]location
	var order [8]int
	locs := room[:0]
	for i := range check.Zones {
		locs = append(locs, location{})
		locs[i].locate(&check.Zones[i])
	}
	decideAt(check, clock, locs, inOrder(order[:0], locs))
}

// decideAt decides at the zones' locations. It locks the shards of those with
// the indexes in locked.
func decideAt(check *stores.Check, clock func() int64, locs []location, locked []int) {
	for _, i := range locked {
		locs[i].shard.mu.Lock()
	}
	check.Now = clock()
	for i := range check.Zones {
		locs[i].judge(&check.Zones[i], check.Now)
		locs[i].only = nil // the next zone may use the same shard
	}
	check.Settle()
	for i := range check.Zones {
		locs[i].apply(check, &check.Zones[i])
	}
	for _, i := range locked {
		locs[i].shard.mu.Unlock()
	}
}

// apply applies to a zone what was decided for the whole check.
func (p *location) apply(check *stores.Check, z *stores.ZoneCheck) {
	if check.Admitted && z.Admits && !check.Peek {
		p.take(z, check.Now, check.TurnOf(z))
	}
	p.count(z, check.Now)
	if check.Peek {
		z.Overflowed = p.slot == nil && p.from != nil
	}
}

// locate finds the zone's shard. It fills in its receiver instead of returning
// a value: reading back what was just written, in larger pieces, stalls the
// processor.
func (p *location) locate(z *stores.ZoneCheck) {
	t := TableOf(z.Counter)
	p.table, p.mix = t, t.mix(z.Key)
	p.at = int(p.mix & uint64(len(t.shards)-1))
	p.shard = &t.shards[p.at]
}

// inOrder appends the indexes of the locations to room in the order of locking,
// each shard once.
func inOrder(room []int, locs []location) []int {
	for n := range locs {
		p, i := &locs[n], len(room)
		for i > 0 && p.before(&locs[room[i-1]]) {
			i--
		}
		if i == 0 || locs[room[i-1]].shard != p.shard {
			room = slices.Insert(room, i, n)
		}
	}
	return room
}

// before says whether the location is locked before another. All goroutines
// lock in this order.
func (p *location) before(o *location) bool {
	return p.table.serial < o.table.serial || p.table == o.table && p.at < o.at
}

func (p *location) judge(z *stores.ZoneCheck, now int64) {
	t, s := p.table, p.shard
	p.slot = t.find(s, z.Key, p.mix)
	if p.from = p.slot; p.slot == nil {
		if b := s.overflow.counter(&t.layout, &s.states, z.Group, z.Rules, now); b != nil && !s.states.unused(&t.layout, b, z.Rules, now) {
			p.from = b
		}
	}
	permits, held := t.layout.held(p.from)
	z.Full = z.Counter.InFlight > 0 && permits >= z.Counter.InFlight
	z.Admits = !z.Full
	for i, r := range z.Rules {
		st := s.states.at(&t.layout, p.from, i)
		if r.Repair(st, now) {
			s.states.keep(&t.layout, p.from, i, st)
			t.repairs.Add(1)
		}
		v := r.Judge(st, now, z.Cost, held)
		z.Results[i].Verdict = v
		z.Admits = z.Admits && v.Admit
		if p.slot != nil && len(z.Rules) == 1 && !t.layout.grows {
			p.only = st
		}
	}
}

// take charges the zone, or takes a permit.
func (p *location) take(z *stores.ZoneCheck, now, turn int64) {
	t, s := p.table, p.shard
	p.ensure(z, now)
	holds, cost := z.Holds()
	if holds && t.layout.permits > 0 {
		z.Permit = stores.Permit{Taken: true, Mode: stores.ModeLocal, Overflow: p.slot == nil}
		p.from[t.layout.permits]++
		if cost {
			p.from[t.layout.permits+1] += z.Cost
		}
	}
	if !cost {
		for i, r := range z.Rules {
			st := p.only
			if st == nil {
				s.states.room(&t.layout, p.from, i, r, now, z.Cost)
				st = s.states.at(&t.layout, p.from, i)
			}
			r.Charge(st, now, z.Cost, turn)
			if p.slot == nil {
				extend(r, st, now)
			}
			s.states.keep(&t.layout, p.from, i, st)
		}
	}
	z.Charged = true
}

// extend extends the window of a rule that has one.
func extend(r algorithms.Rule, s algorithms.State, now int64) {
	if e, ok := r.(algorithms.Extender); ok {
		e.Extend(s, now)
	}
}

// ensure ensures that p.from can be charged: it inserts the zone's key, or else
// selects a shared counter.
func (p *location) ensure(z *stores.ZoneCheck, now int64) {
	if p.slot != nil {
		return
	}
	t, s := p.table, p.shard
	bucket := p.from
	if held, _ := t.layout.held(bucket); held == 0 {
		if p.slot = t.insert(s, z.Key, p.mix, z.Rules, now); p.slot != nil {
			if bucket != nil {
				p.inherit(bucket, z.Rules, now)
			}
			p.from = p.slot
			return
		}
	}
	t.overflows.Add(1)
	z.Overflowed = true
	p.from = s.overflow.make(&t.layout, &s.states, z.Group, z.Rules, now)
}

// inherit copies the shared counter by which a key was decided to its new slot.
func (p *location) inherit(bucket []int64, rules []algorithms.Rule, now int64) {
	l, m := &p.table.layout, &p.shard.states
	m.copy(l, p.slot, bucket)
	for i, r := range rules {
		st := m.at(l, p.slot, i)
		extend(r, st, now)
		m.keep(l, p.slot, i, st)
	}
}

// count sets Remaining and Reset of the results.
func (p *location) count(z *stores.ZoneCheck, now int64) {
	_, held := p.table.layout.held(p.from)
	for i, r := range z.Rules {
		st := p.only
		if st == nil {
			st = p.shard.states.at(&p.table.layout, p.from, i)
		}
		res := &z.Results[i]
		res.Remaining, res.Reset = r.Numbers(st, now)
		res.Remaining = max(0, res.Remaining-held)
	}
}

// Finish releases a zone's permit and charges cost charge unconditionally.
func Finish(z *stores.ZoneCheck, clock func() int64, charge int64) {
	if !z.Permit.Taken && charge == 0 {
		return
	}
	var p location
	p.locate(z)
	t, s := p.table, p.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock()
	if p.slot = t.find(s, z.Key, p.mix); z.Permit.Taken && z.Permit.Overflow {
		p.slot = nil // a permit is released where it was taken
	}
	if p.from = p.slot; p.slot == nil {
		p.from = s.overflow.counter(&t.layout, &s.states, z.Group, z.Rules, now)
		if !z.Permit.Taken {
			p.ensure(z, now)
		}
	}
	if z.Permit.Taken {
		if _, cost := z.Holds(); cost {
			p.from[t.layout.permits+1] -= z.Cost
		}
		if !z.KeepsPermit(charge) {
			p.from[t.layout.permits]--
			z.Permit.Taken = false
		}
	}
	if charge > 0 {
		p.owe(z.Rules, now, charge)
		p.count(z, now)
	}
}

// owe charges p.from unconditionally.
func (p *location) owe(rules []algorithms.Rule, now, charge int64) {
	l, m := &p.table.layout, &p.shard.states
	for i, r := range rules {
		m.room(l, p.from, i, r, now, charge)
		st := m.at(l, p.from, i)
		r.Repair(st, now)
		r.Owe(st, now, charge)
		if p.slot == nil {
			extend(r, st, now)
		}
		m.keep(l, p.from, i, st)
	}
}

var _ stores.Store = (*Store)(nil)
