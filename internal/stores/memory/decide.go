// Package memory counts in this process: a sharded table without pointers, the
// decision in it, and the snapshots of what Redis last reported, by which an
// instance continues without Redis.
package memory

import (
	"context"
	"slices"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Store counts in this process.
type Store struct {
	// Clock returns the current time in microseconds. It never goes back.
	Clock func() int64

	// Permits are what the requests of the store hold.
	Permits Permits
}

// Decide implements [stores.Store].
func (l *Store) Decide(_ context.Context, check *stores.Check) {
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Enforced = z.Counter.Whole()
		z.StartsBlock = z.Counter.Blocks != nil && !check.IsShadow(i) && !check.Peek
	}
	check.Mode = stores.ModeLocal
	l.Permits.Decide(check, l.Clock)
}

// Finish implements [stores.Store].
func (l *Store) Finish(_ context.Context, z *stores.ZoneCheck, charge int64) {
	l.Permits.Finish(z, l.Clock, charge)
}

// location is where a zone's key is counted in its table.
type location struct {
	table *Table
	shard *shard
	at    int // number of the shard
	mix   uint64
	slot  []int64 // the key's own; nil: none yet
	from  []int64 // what the decision reads: the key's slot, a shared counter, or nil
	held  Held    // of the key
}

// Decide decides by the tables of the zones' counters, with the zones' Rules and
// InFlight, and by what requests hold. All tables are locked together, always in the
// same order and before permits, so that the decision is made at one instant. The clock
// is read while the locks are held: if it were read before, it would appear to go back
// whenever two requests overtake each other. A rule of another module may panic: the locks
// are released.
func (h *Permits) Decide(check *stores.Check, clock func() int64) {
	if len(check.Zones) == 1 { // the most frequent case
		z := &check.Zones[0]
		z.ResetResults()
		var p location
		p.locate(z)
		p.shard.mu.Lock()
		defer p.shard.mu.Unlock()
		if dependsOnHeld(z, p.table) {
			permits := &h.shards[shardOf(z)]
			permits.mu.Lock()
			defer permits.mu.Unlock()
			p.held = h.of(z)
		}
		check.Now = clock()
		p.judge(z, check.Now)
		check.Conclude()
		p.apply(check, 0, h)
		return
	}
	h.decideSeveral(check, clock)
}

// decideSeveral decides a check of several zones. It is a function of its own
// so that a check of one zone does not need its stack.
func (h *Permits) decideSeveral(check *stores.Check, clock func() int64) {
	var room [8]location
	var order [8]int
	locs := room[:0]
	check.ResetResults()
	for i := range check.Zones {
		locs = append(locs, location{})
		locs[i].locate(&check.Zones[i])
	}
	h.decideAt(check, clock, locs, inOrder(order[:0], locs))
}

// decideAt decides at the zones' locations. It locks the shards of those with
// the indexes in locked.
func (h *Permits) decideAt(check *stores.Check, clock func() int64, locs []location, locked []int) {
	for _, i := range locked {
		locs[i].shard.mu.Lock()
	}
	held := h.lockFor(check)
	defer func() {
		h.unlock(held)
		for _, i := range locked {
			locs[i].shard.mu.Unlock()
		}
	}()
	check.Now = clock()
	for i := range check.Zones {
		z := &check.Zones[i]
		if held.has(z) {
			locs[i].held = h.of(z)
		}
		locs[i].judge(z, check.Now)
	}
	check.Conclude()
	for i := range check.Zones {
		locs[i].apply(check, i, h)
	}
}

// apply applies to the i-th zone what was decided for the whole check.
func (p *location) apply(check *stores.Check, i int, h *Permits) {
	z := &check.Zones[i]
	if z.Counter.Notifies {
		p.used(z, stores.Before, check.Now)
	}
	charges := check.Charges(i)
	if charges {
		charges = p.grant(z, check.Now, h)
	}
	p.chargeRules(z, check.Now, check.TurnOf(i), charges)
	if !z.Admits && z.StartsBlock && z.Block.Until == 0 {
		p.block(z, check.Now)
	}
	if check.Peek || !z.Admits {
		z.Overflowed = p.slot == nil && p.from != nil
	}
}

// locate finds the zone's shard. It fills in its receiver instead of returning
// a value: reading back what was just written, in larger pieces, stalls the
// processor.
func (p *location) locate(z *stores.ZoneCheck) {
	t := TableOf(z.Counter)
	p.table, p.mix = t, t.slots.mix(z.Key)
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

// shared returns the counter that a zone's key shares with others, nil if nothing is charged to it.
func (p *location) shared(z *stores.ZoneCheck, now int64) []int64 {
	t, s := p.table, p.shard
	b := s.overflow.counter(&t.layout, &s.states, z.Group, z.Rules, now)
	if b != nil && s.states.unused(&t.layout, b, z.Rules, now) {
		return nil
	}
	return b
}

func (p *location) judge(z *stores.ZoneCheck, now int64) {
	t, s := p.table, p.shard
	p.slot = t.find(s, z.Key, p.mix)
	if p.from = p.slot; p.slot == nil && !z.Counter.OwnSlots {
		p.from = p.shared(z, now)
	}
	if z.Counter.Blocks != nil && p.blocked(z, now) {
		return
	}
	z.Held = p.held.Cost
	z.Full = z.InFlight > 0 && p.held.Permits >= z.InFlight
	z.Admits = !z.Full
	for i, r := range z.Rules {
		st := s.states.at(&t.layout, p.from, i)
		r.Repair(st, now)
		algorithms.Follow(r, st, now)
		v := r.Judge(st, now, z.Cost, p.held.Cost)
		z.Results[i].Verdict = v
		z.Admits = z.Admits && v.Admit
	}
}

// grant grants a zone its permit and the cost that it holds, and finds what its rules are charged to. It
// reports whether they are charged.
func (p *location) grant(z *stores.ZoneCheck, now int64, h *Permits) (charges bool) {
	z.Charged = true
	holds, cost := z.Holds()
	if holds {
		z.Permit = stores.Permit{Taken: true, Mode: stores.ModeLocal}
		h.add(z, 1, z.HeldCost())
		p.held.Cost += z.HeldCost()
		p.table.held.Add(z.HeldCost())
	}
	if cost || len(z.Rules) == 0 {
		return false
	}
	p.ensure(z, now)
	return p.from != nil
}

// chargeRules charges the rules, if charges is set, and sets the numbers of the results.
func (p *location) chargeRules(z *stores.ZoneCheck, now, turn int64, charges bool) {
	if z.Blocked() {
		return
	}
	l, m := &p.table.layout, &p.shard.states
	for i, r := range z.Rules {
		if charges && l.grows {
			m.room(l, p.from, i, r, now, z.Cost)
		}
		st := m.at(l, p.from, i)
		if charges {
			r.Charge(st, now, z.Cost, turn)
			if p.slot == nil {
				extend(r, st, now)
			}
		}
		res := &z.Results[i]
		res.Remaining, res.Reset = r.Numbers(st, now)
		res.Remaining = max(0, res.Remaining-p.held.Cost)
		if z.WantsMore {
			res.SetMore(r, st, now, p.held.Cost)
		}
	}
	if z.Counter.Notifies {
		p.used(z, stores.After, now)
	}
}

// extend extends the window of a rule that has one.
func extend(r algorithms.Rule, s algorithms.State, now int64) {
	if e, ok := r.(algorithms.Extender); ok {
		e.Extend(s, now)
	}
}

// ensure ensures that p.from can be charged: it inserts the zone's key, or else
// selects a shared counter. It leaves p.from nil if the zone shares none: such a key
// is not counted.
func (p *location) ensure(z *stores.ZoneCheck, now int64) {
	if p.slot != nil {
		return
	}
	t, s := p.table, p.shard
	bucket := p.from
	if p.slot = t.insert(s, z, p.mix, now); p.slot != nil {
		if bucket != nil {
			p.inherit(bucket, z.Rules, now)
		}
		p.from = p.slot
		return
	}
	z.Overflowed = true
	if z.Counter.OwnSlots {
		return
	}
	p.from = s.overflow.make(&t.layout, &s.states, z.Group, z.Rules, now)
}

// inherit copies the shared counter by which a key was decided to its new slot.
func (p *location) inherit(bucket []int64, rules []algorithms.Rule, now int64) {
	l, m := &p.table.layout, &p.shard.states
	m.copy(l, p.slot, bucket)
	for i, r := range rules {
		extend(r, m.at(l, p.slot, i), now)
	}
}

// blocked denies a zone whose key is blocked.
func (p *location) blocked(z *stores.ZoneCheck, now int64) bool {
	if z.IgnoreBlock {
		return false
	}
	b, ok := BlocksOf(z.Counter).Last(z.Key, now)
	if z.Block.Step = b.Step; ok && b.Until > now {
		z.Block = stores.Block{Until: b.Until, Span: b.Span, Rule: b.Rule, Step: b.Step}
		z.DenyBlocked(now)
		return true
	}
	return false
}

// block blocks a zone's key if a rule that blocks denies. A counter that several keys share
// blocks none of them.
func (p *location) block(z *stores.ZoneCheck, now int64) {
	b, ok := z.StartedBlock(now)
	if !ok {
		return
	}
	if p.slot == nil || !BlocksOf(z.Counter).Set(z.Key, KnownBlock{Until: b.Until, Span: b.Span, Rule: b.Rule, Step: b.Step}, now) {
		z.Unblocked = true
		return
	}
	z.StartBlock(b, now)
}

// used sets what the rules have used, before or after a charge.
func (p *location) used(z *stores.ZoneCheck, when int, now int64) {
	for i, r := range z.Rules[:len(z.Results)] {
		z.Results[i].SetUsed(when, r, p.shard.states.at(&p.table.layout, p.from, i), now)
	}
}

// Finish charges cost charge unconditionally, and releases a zone's permit.
func (h *Permits) Finish(z *stores.ZoneCheck, clock func() int64, charge int64) {
	z.Overflowed = false
	if !z.Permit.Taken && charge == 0 {
		return
	}
	var p location
	p.locate(z)
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	now := clock()
	if z.Permit.Taken {
		h.release(z)
	}
	if charge > 0 && len(z.Rules) > 0 {
		p.slot = p.table.find(p.shard, z.Key, p.mix)
		if p.from = p.slot; p.slot == nil {
			if !z.Counter.OwnSlots {
				p.from = p.shard.overflow.counter(&p.table.layout, &p.shard.states, z.Group, z.Rules, now)
			}
			p.ensure(z, now)
		}
		if z.Counter.Notifies {
			p.used(z, stores.Before, now)
		}
		if p.from != nil {
			p.owe(z, now, charge)
		}
		p.held = h.Of(z)
		p.chargeRules(z, now, 0, false)
	}
}

// release ends the hold of a zone's cost and, unless the request keeps it, its permit.
func (h *Permits) release(z *stores.ZoneCheck) {
	permits := z.EndedPermits()
	h.Add(z, -permits, -z.HeldCost())
	TableOf(z.Counter).held.Add(-z.HeldCost())
	z.Permit.Taken = permits == 0
}

// owe charges p.from unconditionally.
func (p *location) owe(z *stores.ZoneCheck, now, charge int64) {
	l, m := &p.table.layout, &p.shard.states
	for i, r := range z.Rules {
		m.room(l, p.from, i, r, now, charge)
		st := m.at(l, p.from, i)
		r.Repair(st, now)
		r.Overdraw(st, now, charge)
		if p.slot == nil {
			extend(r, st, now)
		}
	}
}

var _ stores.Store = (*Store)(nil)
