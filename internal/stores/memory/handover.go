package memory

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Of a key an instance keeps what Redis last said and what it has not yet been told. Each event changes
// that in one way, whatever was before:
//
//	event                          told     full           charged  lost            warm             owed
//	Learn: Redis reports           set      set if less    cleared, set if it is    cleared          -
//	                                        is left than   if it is less
//	                                        was asked for  later
//	Learn, after it was put back   set      the same       the same cleared         cleared          -
//	Ask: it was charged there,     -        -              set if   -               -                -
//	and nothing was reported                               told
//	Warm: Redis is not asked       -        -              -        -               set, if nothing  0, if none of it
//	                                                                                is owed          counts any more
//	Owe: it was charged then       -        -              -        -               -                more
//	Take: a call leaves            -        -              -        cleared         cleared          the rest
//	End: it was answered           -        -              -        -               -                -
//	End: it was not answered       -        -              -        as it was taken -                -
//	End: it was rejected           -        -              -        as it was taken -                more, but for
//	                                                                                                 what was reset
//	Forget: Redis refused what     cleared  cleared        cleared  cleared         cleared          -
//	was told, before a reset
//	reset                          cleared  cleared        cleared  cleared         cleared          0
//
// A call takes a key's snapshot along if it is told and lost, warm or owing, and its debt if it owes.

// Handover is what a call hands over to Redis for a key.
type Handover struct {
	// Told are the snapshots of the rules, which Redis may have lost. nil: none.
	Told [][]int64

	// Time is what time it should be in Redis by the clock that the snapshots are on.
	Time int64

	// Debts are what was charged to the rules without Redis. nil: nothing.
	Debts [][]int64

	// Cost is the cost of the debts.
	Cost int64

	// ToldSince and OwedSince are when this process was told all of Told, at the earliest, and when
	// it began to owe Debts, by the clock of Time.
	ToldSince, OwedSince int64

	lost bool // whether Redis has reported less than Told
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

// Learn records what Redis reported for a zone. It calls charge once, which changes the
// reported states to those after the decision. A reply that is less than the snapshot
// says that Redis has lost its memory: the snapshot stays, and is put back with the next
// check. With replace, it was put back by the call that is answered, which reports the
// maximum. It returns the cost that Redis has lost, and that is not put back.
func (n *Snapshots) Learn(z *stores.ZoneCheck, now Instant, replace bool, charge func()) (lost int64) {
	mix := n.slots.mix(z.Key)
	s := n.shardOf(mix)
	s.mu.Lock()
	defer s.mu.Unlock()
	x := n.make(s, z, mix, now.Local)
	if x == nil {
		charge()
		return 0
	}
	n.setOrigin(x, z)
	marks := x[snapshotMarks]&^(markWarm|markFull) | markTold
	if x.has(markTold) && now.Shared > x[snapshotTime] { // an older reply says nothing of what came later
		lost = n.layout.lost(x, z, now.Shared)
		marks &^= markCharged
	}
	if replace {
		n.layout.clearTold(x)
		marks &^= markLost
	}
	if x.has(markTold) {
		n.layout.follow(x, z.Rules, now)
	} else {
		n.layout.clearTold(x)
	}
	overtaken := now.Shared < x[snapshotTime]
	later := max(now.Shared, x[snapshotTime])
	if !overtaken {
		x[snapshotOffset] = now.Shared - now.Local
	}
	if !n.less(s, x, z, now.Shared, later) {
		x[snapshotSince] = now.Shared // it is what this reply says
	} else {
		x[snapshotSince] = min(now.Shared, x[snapshotSince])
		if now.Shared > x[snapshotTime] { // an older reply says nothing of what came later
			marks |= markLost
		}
	}
	charge()
	if !overtaken && short(z) { // otherwise the key may have been reset in between
		marks |= markFull
	}
	for i, r := range z.Rules {
		h, snap := r.(algorithms.Handover), s.room(n.layout, i)
		h.Snapshot(snap, z.Results[i].State, now.Shared)
		h.Raise(snap, n.layout.told(x, i), later)
		copy(n.layout.told(x, i), snap)
	}
	x[snapshotTime] = later
	x[snapshotMarks] = marks
	return lost
}

// short reports whether less is left under a rule than a zone's cost. While requests hold cost, what is left
// may change at any moment.
func short(z *stores.ZoneCheck) bool {
	if permit, _ := z.Holds(); permit || z.Held > 0 {
		return false
	}
	for i := range z.Results {
		if z.Results[i].Remaining < z.Cost {
			return true
		}
	}
	return false
}

// room returns room for the snapshot of a rule.
func (s *snapshotShard) room(l snapshotLayout, rule int) []int64 {
	size := l[rule].end - l[rule].told
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
		h, snap := r.(algorithms.Handover), s.room(n.layout, i)
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

// Warm prepares a zone for being decided without Redis: its local state is raised to this instance's
// share of the snapshot, unless that was done since Redis was last asked for the key, or the key owes
// something, which is not to be mixed with what Redis knows. It reports whether there is room for what the
// key is charged then, which [Snapshots.Owe] notes: not while it is counted together with others.
func (n *Snapshots) Warm(z *stores.ZoneCheck, now Instant) (room bool) {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x, t := n.make(s, z, p.mix, now.Local), p.table
	if x == nil {
		return false
	}
	p.slot = t.find(p.shard, z.Key, p.mix)
	if x.owes() && (p.slot == nil || p.shard.states.unused(&t.layout, p.slot, z.Rules, now.Shared)) {
		x.setOwed(p.slot, 0) // nothing of it counts any more
	}
	if p.slot == nil && p.shared(z, now.Shared) != nil {
		return false // the key will inherit the shared counter, which it does not owe
	}
	if !x.owes() {
		n.setOrigin(x, z)
		if x.has(markTold) && !x.has(markWarm) {
			n.raise(&p, x, z, now)
		}
	} else if c := z.Counter.Overrides[x.override()]; c == nil || c.Capacity() <= z.Counter.Capacity() {
		n.setOrigin(x, z) // a lesser one would cut the debt
	}
	return true
}

// raise raises the states of a key to this instance's share of its snapshot.
func (n *Snapshots) raise(p *location, x snapshot, z *stores.ZoneCheck, now Instant) {
	t := p.table
	if p.slot == nil {
		if p.slot = t.insert(p.shard, z, p.mix, now.Shared); p.slot == nil {
			return
		}
	}
	x[snapshotMarks] |= markWarm
	n.layout.follow(x, z.Counter.Rules, now)
	for i, r := range z.Rules {
		h := r.(algorithms.Handover)
		p.shard.states.room(&t.layout, p.slot, i, r, now.Shared, h.Room(n.layout.told(x, i)))
		st := p.shard.states.at(&t.layout, p.slot, i)
		r.Repair(st, now.Shared)
		h.Warm(st, n.layout.told(x, i), z.Counter.Rules[i], now.Shared)
	}
}

// Noted is what [Snapshots.Owe] has done.
type Noted uint8

// What becomes of a cost that is to be owed.
const (
	NotedMore   Noted = iota // the key owes it, or nothing of it counts any more
	NotedFirst               // likewise, and the key owed nothing before
	NotedNoRoom              // there is no room for what the key owes
	NotedReset               // the key was reset since it was charged
)

// Owe notes that a zone's key owes a cost that was charged to it at a time.
func (n *Snapshots) Owe(z *stores.ZoneCheck, cost, at, local int64) Noted {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	if s.resets.since(z.Key, at, local) {
		return NotedReset
	}
	x := n.make(s, z, p.mix, local)
	if x == nil {
		return NotedNoRoom
	}
	if p.slot = p.table.find(p.shard, z.Key, p.mix); p.slot == nil {
		return NotedMore
	}
	starts := !x.owes()
	if starts && p.shard.states.cleared(&p.table.layout, p.slot) {
		return NotedReset
	}
	if starts || at < p.slot[slotOwing] {
		p.slot[slotOwing] = at
	}
	x.setOwed(p.slot, min(p.slot[slotOwed]+cost, mostOwed))
	if starts {
		return NotedFirst
	}
	return NotedMore
}

// Take takes what a zone's key has to hand over: its debt under the zone's Rules, and its snapshot if
// Redis has lost it, if the key was decided without Redis since that was asked, or if told is set. more
// says that this is not the whole debt. [Snapshots.End] has to follow.
func (n *Snapshots) Take(z *stores.ZoneCheck, now Instant, told bool) (h Handover, more bool) {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	x := n.find(s, z.Key, p.mix)
	if x == nil {
		return h, false
	}
	h.Time, h.ToldSince = now.Local+x[snapshotOffset], x[snapshotSince]
	if (told || x.due()) && n.layout.live(x, z.Counter.Rules, now.Local) {
		for i := range z.Rules {
			h.Told = append(h.Told, append([]int64(nil), n.layout.told(x, i)...))
		}
	}
	h.lost = x.has(markLost)
	x[snapshotMarks] &^= markLost | markWarm
	if x.owes() {
		p.slot = p.table.find(p.shard, z.Key, p.mix)
		x.setOwed(p.slot, p.debts(z, now.Shared, &h))
	}
	return h, x.owes()
}

// GiveUp gives up what a zone's key owes, and returns what of it still counts. With reset, the key is reset at
// the same time: see [Table.Reset]. The clock is read while the locks are held, as for a charge: what is charged before
// it is reset is older.
func (n *Snapshots) GiveUp(z *stores.ZoneCheck, clock func() Instant, reset bool) (cost int64) {
	p, s := n.lock(z)
	defer p.shard.mu.Unlock()
	defer s.mu.Unlock()
	now := clock()
	p.slot = p.table.find(p.shard, z.Key, p.mix)
	x := n.find(s, z.Key, p.mix)
	if x != nil && x.owes() {
		if p.slot != nil {
			cost, _ = p.owed(z, now.Shared)
		}
		x.setOwed(p.slot, 0)
	}
	if reset {
		p.table.clear(p.shard, p.slot)
		s.resets.note(z.Key, now)
		x.reset()
	}
	return cost
}

// owed returns what of the cost that a key owes still counts, and how much of that is to be left for
// another call.
func (p *location) owed(z *stores.ZoneCheck, now int64) (owed, rest int64) {
	for i, r := range z.Rules {
		st := p.shard.states.at(&p.table.layout, p.slot, i)
		r.Repair(st, now)
		counts, later := r.(algorithms.Handover).Owed(st, p.slot[slotOwed], now)
		owed, rest = max(owed, counts), max(rest, later)
	}
	return owed, rest
}

// debts sets what is handed over of the cost that a key owes, and returns the rest of it.
func (p *location) debts(z *stores.ZoneCheck, now int64, h *Handover) (rest int64) {
	if p.slot == nil {
		return 0
	}
	owed, rest := p.owed(z, now)
	h.OwedSince = p.slot[slotOwing]
	if h.Cost = owed - rest; owed == 0 {
		return 0
	}
	for i, r := range z.Rules {
		st := p.shard.states.at(&p.table.layout, p.slot, i)
		h.Debts = append(h.Debts, r.(algorithms.Handover).Debt(st, owed, rest, z.Counter.Rules[i], now))
	}
	return rest
}

// End ends the call with a handover. Without an answer the snapshot, which Redis may put back
// more than once, is put back by the next check, too. A debt that was certainly rejected is owed
// again, as [Snapshots.Owe] says.
func (n *Snapshots) End(z *stores.ZoneCheck, h *Handover, answered, rejected bool, local int64) Noted {
	if !answered && h.lost {
		s, x := n.lockKey(z.Key)
		x.lose()
		s.mu.Unlock()
	}
	if !rejected || h.Debts == nil {
		return NotedMore
	}
	return n.Owe(z, h.Cost, h.OwedSince, local)
}

// lose notes that Redis may not have what it told of a key, if it did.
func (x snapshot) lose() {
	if x != nil && x.has(markTold) {
		x[snapshotMarks] |= markLost
	}
}

// Forget forgets the snapshot of a key, because the key was reset.
func (n *Snapshots) Forget(k stores.Key) {
	s, x := n.lockKey(k)
	defer s.mu.Unlock()
	if x != nil {
		x[snapshotMarks] &^= markTold | markFull | markCharged | markLost | markWarm
	}
}

// Debtors appends keys with a debt to keys, up to its capacity, and returns where to
// continue.
func (n *Snapshots) Debtors(keys []stores.Key, from Cursor) ([]stores.Key, Cursor) {
	return n.walk(keys, from, snapshot.owes)
}

// Living appends keys with a snapshot that still counts under the rules, as Debtors does.
func (n *Snapshots) Living(keys []stores.Key, from Cursor, rules []algorithms.Rule, local int64) ([]stores.Key, Cursor) {
	return n.walk(keys, from, func(x snapshot) bool { return n.layout.live(x, rules, local) })
}
