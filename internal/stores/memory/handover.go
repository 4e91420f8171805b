package memory

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Handover is what a call hands over to Redis for a key.
type Handover struct {
	// Told are the snapshots of the rules, which Redis may have lost. nil: none.
	Told [][]int64

	// Time is what time it should be in Redis by the clock that the snapshots are on.
	Time int64

	// Debts are what was charged to the rules without Redis. nil: nothing.
	Debts [][]int64

	// ToldSince and OwedSince are when this process was told all of Told, at the earliest, and when
	// it began to owe Debts, by the clock of Time.
	ToldSince, OwedSince int64

	bases [][]int64 // before the debts were taken; nil: there are none
	lost  bool      // whether Redis has reported less than Told
}

// Cost returns the cost of the debts under the rules.
func (h *Handover) Cost(rules []algorithms.Rule) (cost int64) {
	for i, debt := range h.Debts {
		cost = max(cost, rules[i].(algorithms.Handover).DebtCost(debt)) //nolint:forcetypeassert // it has a snapshot
	}
	return cost
}

// lock locks the shard of a zone's counts and that of its snapshot, in this
// order.
func (n *Snapshots) lock(z *stores.ZoneCheck) (p location, s *snapshotShard) {
	p.locate(z)
	p.shard.mu.Lock()
	s = n.shardOf(p.mix)
	s.mu.Lock()
	return p, s
}

// Known says whether this instance has a snapshot of a zone's key that still counts, and
// whether the key has something to hand over.
func (n *Snapshots) Known(z *stores.ZoneCheck, now Instant) (known, due bool) {
	s, x := n.lockKey(z.Key)
	defer s.mu.Unlock()
	if x != nil {
		return n.layout.live(x, z.Counter.Rules, now.Local), x.has(markLost | markOwes)
	}
	return false, false
}

// Learn records what Redis reported for a zone. It calls charge once, which changes the
// reported states to those after the decision. A reply that is less than the snapshot
// says that Redis has lost its memory: the snapshot stays, and is put back with the next
// check. With replace, it was put back by the call that is answered, which reports the
// maximum.
func (n *Snapshots) Learn(z *stores.ZoneCheck, now Instant, replace bool, charge func()) {
	mix := n.table.mix(z.Key)
	s := n.shardOf(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := n.make(s, z, mix, now.Local)
	if x == nil {
		charge()
		return
	}
	n.setOrigin(x, z)
	marks := x[snapshotMarks] | markTold
	if replace {
		n.layout.clearTold(x)
		marks &^= markLost
	}
	if x.has(markTold) {
		n.layout.follow(x, z.Rules, now)
	} else {
		n.layout.clearTold(x)
	}
	x[snapshotOffset] = now.Shared - now.Local
	later := max(now.Shared, x[snapshotTime])
	if !n.less(s, x, z, now.Shared, later) {
		x[snapshotSince] = now.Shared // it is what this reply says
	} else {
		x[snapshotSince] = min(now.Shared, x[snapshotSince])
		if now.Shared > x[snapshotTime] { // an older reply says nothing of what came later
			marks |= markLost
		}
	}
	charge()
	for i, r := range z.Rules {
		h, snap := r.(algorithms.Handover), n.scratch(s, i)
		h.Snapshot(snap, z.Results[i].State, now.Shared)
		h.Raise(snap, n.layout.told(x, i), later)
		copy(n.layout.told(x, i), snap)
	}
	x[snapshotTime] = later
	x[snapshotMarks] = marks
}

// scratch returns room for the snapshot of a rule.
func (n *Snapshots) scratch(s *snapshotShard, rule int) []int64 {
	size := n.layout[rule].base - n.layout[rule].told
	if len(s.scratch) < size {
		s.scratch = make([]int64, size)
	}
	return s.scratch[:size]
}

// less says whether what Redis reported of a key at a time is less than its snapshot, both
// as of now, which may be later. The snapshot becomes the maximum of both; that of a rule
// that what Redis reported cannot be compared with is replaced.
func (n *Snapshots) less(s *snapshotShard, x snapshot, z *stores.ZoneCheck, at, now int64) (less bool) {
	for i, r := range z.Rules {
		h, snap := r.(algorithms.Handover), n.scratch(s, i)
		if h.Supersedes(z.Results[i].State, n.layout.told(x, i)) {
			clear(n.layout.told(x, i))
			continue
		}
		h.Snapshot(snap, z.Results[i].State, at)
		less = h.Raise(snap, n.layout.told(x, i), now) || less
		copy(n.layout.told(x, i), snap)
	}
	return less
}

// Warm prepares a zone for being decided without Redis: its local state is raised to
// this instance's share of the snapshot, and what is charged from then on is owed to
// Redis. It reports whether the key starts to owe, and whether it does: not without room for
// what it owes, nor while it is counted together with others.
func (n *Snapshots) Warm(z *stores.ZoneCheck, now Instant) (starts, owes bool) {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x, t := n.make(s, z, p.mix, now.Local), p.table
	if x == nil {
		return false, false
	}
	p.slot = t.find(p.shard, z.Key, p.mix)
	if p.slot == nil && p.shared(z, now.Shared) != nil {
		delete(s.paying, z.Key) // the debt of a slot that is gone
		x[snapshotMarks] &^= markOwes
		return false, false // the key will inherit the shared counter, which it does not owe
	}
	if x.has(markOwes) {
		if p.slot == nil || p.shard.states.unused(&t.layout, p.slot, z.Rules, now.Shared) {
			x[snapshotOwing] = 0 // nothing of what was owed counts any more
		}
		if c := z.Counter.Overrides[x.override()]; c == nil || c.Capacity() <= z.Counter.Capacity() {
			n.setOrigin(x, z) // a lesser one would cut the debt
		}
		return false, true
	}
	n.setOrigin(x, z)
	if p.slot != nil && s.paying[z.Key] != nil {
		x[snapshotMarks] |= markOwes // beyond the debt that is on its way
		return true, true
	}
	delete(s.paying, z.Key)
	told := x.has(markTold)
	if p.slot == nil && told {
		p.slot = t.insert(p.shard, z, p.mix, now.Shared)
	}
	x[snapshotMarks] |= markOwes
	if p.slot == nil {
		for i := range z.Rules {
			clear(n.layout.base(x, i))
		}
		return true, true
	}
	if told {
		n.layout.follow(x, z.Counter.Rules, now)
		x[snapshotOffset] = now.Shared - now.Local
	}
	for i, r := range z.Rules {
		h := r.(algorithms.Handover)
		if told {
			p.shard.states.room(&t.layout, p.slot, i, r, now.Shared, h.Room(n.layout.told(x, i)))
		}
		st := p.shard.states.at(&t.layout, p.slot, i)
		r.Repair(st, now.Shared)
		if told {
			h.Warm(st, n.layout.told(x, i), z.Counter.Rules[i], now.Shared)
		}
		h.Base(n.layout.base(x, i), st)
	}
	return true, true
}

// Owe notes that a zone's key has owed what it was charged from now on, unless it did before.
func (n *Snapshots) Owe(z *stores.ZoneCheck, now int64) {
	s, x := n.lockKey(z.Key)
	defer s.mu.Unlock()
	x.owesSince(now)
}

// owesSince notes when a key began to owe, unless it did before. The snapshot may be nil.
func (x snapshot) owesSince(now int64) {
	if x != nil && x[snapshotOwing] == 0 {
		x[snapshotOwing] = now
	}
}

// Wait has no debt of a key taken until it is known whether a call has charged it: then
// [Snapshots.Forgive] or [Snapshots.Refuse] is called.
func (n *Snapshots) Wait(k stores.Key) {
	s, _ := n.lockKey(k)
	defer s.mu.Unlock()
	if s.late == nil {
		s.late = make(map[stores.Key]int)
	}
	s.late[k]++
}

// arrives ends a Wait. It reports whether the key was not reset since.
func (s *snapshotShard) arrives(k stores.Key) bool {
	was := s.late[k]
	if s.late[k]--; was <= 1 {
		delete(s.late, k)
	}
	return was > 0
}

// Refuse ends a Wait: Redis has not charged what the key owes since a time. It reports whether the key is
// still to be charged: it was not reset since.
func (n *Snapshots) Refuse(z *stores.ZoneCheck, now int64) bool {
	s, x := n.lockKey(z.Key)
	defer s.mu.Unlock()
	if !s.arrives(z.Key) {
		return false
	}
	x.owesSince(now)
	return true
}

// Forgive ends a Wait: it reduces the debt of a zone's key by what each rule was charged at a time.
func (n *Snapshots) Forgive(z *stores.ZoneCheck, now, turn int64, charged func(rule int) int64) {
	s, x := n.lockKey(z.Key)
	defer s.mu.Unlock()
	if s.arrives(z.Key) && x != nil && x.has(markOwes) {
		before := s.paying[z.Key]
		for i, r := range z.Rules {
			h, cost := r.(algorithms.Handover), charged(i)
			h.Forgive(n.layout.base(x, i), now, cost, turn)
			if before != nil {
				h.Forgive(before[i], now, cost, turn)
			}
		}
	}
}

// Take takes what a zone's key has to hand over: its debt under the zone's Rules, unless a debt
// is on its way, and its snapshot, with a debt, if Redis has lost it or if told is set. more says
// that this is not the whole debt. [Snapshots.Settle] has to follow.
func (n *Snapshots) Take(z *stores.ZoneCheck, now Instant, told bool) (h Handover, more bool) {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x := n.find(s, z.Key, p.mix)
	if x == nil {
		return h, false
	}
	h.Time, h.ToldSince, h.OwedSince = now.Local+x[snapshotOffset], x[snapshotSince], x[snapshotOwing]
	if (told || x.has(markLost|markOwes)) && n.layout.live(x, z.Counter.Rules, now.Local) {
		for i := range z.Rules {
			h.Told = append(h.Told, append([]int64(nil), n.layout.told(x, i)...))
		}
	}
	h.lost = x.has(markLost)
	x[snapshotMarks] &^= markLost
	if x.has(markOwes) && s.paying[z.Key] == nil && s.late[z.Key] == 0 {
		more = n.takeDebts(&p, x, z, now.Shared, &h)
		s.pays(z.Key, h.bases)
	}
	return h, more
}

// takeDebts takes the debts of a key that owes. more says that it still owes.
func (n *Snapshots) takeDebts(p *location, x snapshot, z *stores.ZoneCheck, now int64, h *Handover) (more bool) {
	if p.slot = p.table.find(p.shard, z.Key, p.mix); p.slot != nil {
		owing := false
		debts, bases := make([][]int64, len(z.Rules)), make([][]int64, len(z.Rules))
		for i, r := range z.Rules {
			st := p.shard.states.at(&p.table.layout, p.slot, i)
			r.Repair(st, now)
			bases[i] = append(bases[i], n.layout.base(x, i)...)
			h := r.(algorithms.Handover)
			debt, owes, rest := h.Debt(st, n.layout.base(x, i), z.Counter.Rules[i], now)
			if !rest {
				h.Base(n.layout.base(x, i), st)
			}
			debts[i], owing, more = debt, owing || owes, more || rest
		}
		if owing {
			h.Debts, h.bases = debts, bases
		}
	}
	if !more {
		x[snapshotMarks] &^= markOwes
		x[snapshotOwing] = 0
	}
	return more
}

// Settle ends the call with a handover. Without an answer the snapshot, which Redis may put back
// more than once, is put back by the next check, too. A debt that was certainly rejected is owed
// again, together with what was charged meanwhile. It reports whether the key owes anything.
func (n *Snapshots) Settle(k stores.Key, h *Handover, answered, rejected bool) (owes bool) {
	if h.bases == nil && (answered || !h.lost) {
		return false
	}
	s, x := n.lockKey(k)
	defer s.mu.Unlock()
	if x != nil && h.lost && !answered && x.has(markTold) {
		x[snapshotMarks] |= markLost
	}
	if h.bases == nil || !s.isPaying(k, h.bases) {
		return false // there is no debt, it is settled, or the key was reset
	}
	delete(s.paying, k)
	if x == nil {
		return false
	}
	if rejected {
		for i := range n.layout {
			copy(n.layout.base(x, i), h.bases[i])
		}
		x[snapshotOwing] = h.OwedSince // which is before what was charged meanwhile
		x[snapshotMarks] |= markOwes
	}
	return x.has(markOwes)
}

// Drop forgets the snapshot of a key, because the key was reset.
func (n *Snapshots) Drop(k stores.Key) {
	s, x := n.lockKey(k)
	defer s.mu.Unlock()
	if x != nil {
		x[snapshotMarks] &^= markTold | markLost
	}
}

// Debtors appends keys with a debt to keys, up to its capacity, and returns where to
// continue.
func (n *Snapshots) Debtors(keys []stores.Key, from Cursor) ([]stores.Key, Cursor) {
	return n.walk(keys, from, func(x snapshot) bool { return x.has(markOwes) })
}

// Living appends keys with a snapshot that still counts under the rules, as Debtors does.
func (n *Snapshots) Living(keys []stores.Key, from Cursor, rules []algorithms.Rule, local int64) ([]stores.Key, Cursor) {
	return n.walk(keys, from, func(x snapshot) bool { return n.layout.live(x, rules, local) })
}
