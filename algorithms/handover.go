package algorithms

import (
	"math/bits"
	"slices"
)

// Handover is a [Rule] whose state can be handed over from the shared store to the
// local fallback of an instance, and back. A rule without it starts at zero in the
// fallback, what is admitted there is not charged later, and what the shared store
// forgets is not put back.
//
// For the handover, an instance keeps two things of each key. The snapshot is the
// greatest state in the shared store that it knows of, on that store's clock: it
// starts the fallback, and it is put back if the shared store has lost its memory.
// The other is the cost that was charged to the local state and that the shared store
// has not been told. What the local state began with is older and stops counting first, so
// that of this cost c, min(c, what the state has) still counts: the newest.
type Handover interface {
	Rule

	// SnapshotWords returns the length of a snapshot.
	SnapshotWords() int

	// Snapshot sets the snapshot to s, a state of this rule in the shared store; of a
	// [Growing] rule, a state of its View.
	Snapshot(snap []int64, s State, now int64)

	// Supersedes reports whether s, which is such a state, was written under a rule
	// that the snapshot cannot be compared with. It then replaces the snapshot.
	Supersedes(s State, snap []int64) bool

	// Live reports whether the snapshot still counts at now, and may be put back.
	Live(snap []int64, now int64) bool

	// Raise raises the snapshot to the maximum of itself and another one, and reports
	// whether that changed it.
	Raise(snap, other []int64, now int64) bool

	// Shift moves the times of the snapshot by d microseconds, because the clock of
	// the shared store was set. It says now afterwards.
	Shift(snap []int64, d, now int64)

	// Room returns the cost that a growing state must have room for before Warm.
	Room(snap []int64) int64

	// Warm raises s to this rule's share of the snapshot. The rule is a share of
	// the rule full.
	Warm(s State, snap []int64, full Rule, now int64)

	// Owed returns how much of cost c, the newest that was charged to s, still counts, rounded
	// up, and how much of that, the newest, is more than one Debt may have.
	Owed(s State, c, now int64) (owed, rest int64)

	// Debt returns the newest cost c that was charged to s but for the newest rest of it, as the
	// function in Lua takes it under the rule full.
	Debt(s State, c, rest int64, full Rule, now int64) (debt []int64)
}

// Partial is a [Handover] whose snapshots are not states, or do not always tell what they would. Without it, a
// snapshot is judged as a state, or, if it is of another length or the rule is [Growing], denies nothing without a
// call.
type Partial interface {
	Handover

	// Recalled returns the rule that takes a snapshot as its State, to judge a cost and to return
	// numbers.
	Recalled() Rule

	// Recalls reports whether that rule says of a cost at now what this one would say of the state.
	Recalls(snap []int64, now, cost int64) bool
}

// Lossy is a [Handover] of which not every state is put back after the shared store has lost it.
type Lossy interface {
	Handover

	// Lost returns the cost of a snapshot that still counts at now and is not put back, if s, which Snapshot may be set
	// to, says that the store has lost all of it.
	Lost(snap []int64, s State, now int64) int64
}

// scale returns v*part/whole, rounded down. part is at most whole.
func scale(v, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(v), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}

// plain is embedded in a rule whose states have this number of words, and whose
// snapshots are states.
type plain int

func (p plain) Words() int                              { return int(p) }
func (p plain) SnapshotWords() int                      { return int(p) }
func (p plain) Snapshot(snap []int64, s State, _ int64) { copy(snap, s) }
func (p plain) Room([]int64) int64                      { return 0 }

// Supersedes implements [Handover]. Levels under different limits drain at different
// rates.
func (m *meter) Supersedes(s State, snap []int64) bool { return s[2] != 0 && s[2] != snap[2] }

// Recalled implements [Partial].
func (m *meter) Recalled() Rule { return m }

// Recalls implements [Partial]. A level that was written under another limit drains at another rate once
// another instance has charged it.
func (m *meter) Recalls(snap []int64, _, _ int64) bool { return snap[2] == 0 || snap[2] == m.limit }

func (m *meter) Live(snap []int64, now int64) bool {
	return snap[2] > 0 && (snap[0] > now || snap[0] == now && snap[1] > 0)
}

func (m *meter) Raise(snap, other []int64, now int64) bool {
	t := m.at(now)
	if m.levelUpTo(other, t, m.top(other)) <= m.levelUpTo(snap, t, m.top(snap)) {
		return false
	}
	copy(snap, other)
	return true
}

// top returns the highest level that a state may have, in units of cost.
func (m *meter) top(s State) int64 { return max(min(s[3], 2*maxExact/m.w), m.burst) }

func (m *meter) Shift(snap []int64, d, _ int64) {
	if snap[2] > 0 {
		snap[0] += d
	}
}

// Warm implements [Handover]. The time that the shared level needs to drain is kept:
// a share has a smaller capacity and drains as much slower.
func (m *meter) Warm(s State, snap []int64, _ Rule, now int64) {
	t := m.at(now)
	ahead := snap[0] - t
	if ahead <= 0 {
		return
	}
	level := m.capacity
	if ahead <= level/m.l {
		level = min(level, ahead*m.l)
	}
	if level > m.level(s, t) {
		m.write(s, t, level)
	}
}

func (m *meter) Owed(s State, c, now int64) (owed, rest int64) {
	return min(c, cd(m.levelUpTo(s, m.at(now), m.top(s)), m.w)), 0
}

// Debt implements [Handover]. A debt is a level of the rule full: the same cost in
// whole units would be up to one unit too much, which may take long to drain. What was charged
// by a greater share is owed as a whole.
func (m *meter) Debt(s State, c, rest int64, full Rule, now int64) (debt []int64) {
	level := m.levelUpTo(s, m.at(now), m.top(s))
	return []int64{m.convert(m.part(level, c)-m.part(level, rest), full)}
}

// part returns the part of a level that is cost c, or all of it.
func (m *meter) part(level, c int64) int64 {
	if c >= cd(level, m.w) {
		return level
	}
	return c * m.w
}

// convert returns a level of this meter as a level of the meter full, rounded up.
func (m *meter) convert(level int64, full Rule) int64 {
	f, ok := full.(*meter)
	if !ok || f.w == m.w {
		return level
	}
	hi, lo := bits.Mul64(uint64(level%m.w), uint64(f.w))
	q, r := bits.Div64(hi, lo, uint64(m.w))
	if r > 0 {
		q++
	}
	return min(level/m.w, f.burst)*f.w + int64(q)
}

func (f *fixedWindow) Live(snap []int64, now int64) bool {
	used, _ := f.used(snap, now)
	return used > 0
}

// Raise implements [Handover]. Of two windows that are open the maximum begins with
// the earlier one and has the greater count.
func (f *fixedWindow) Raise(snap, other []int64, now int64) bool {
	used, _ := f.used(snap, now)
	more, _ := f.used(other, now)
	switch {
	case more == 0:
		return false
	case used == 0:
		copy(snap, other)
		return true
	}
	raised := more > used || other[0] < snap[0]
	snap[0], snap[1] = min(snap[0], other[0]), max(used, more)
	return raised
}

// Shift implements [Handover]. What counted in an aligned window before the clock was set counts in
// the present one.
func (f *fixedWindow) Shift(snap []int64, d, now int64) {
	switch {
	case snap[1] == 0:
	case f.align && snap[0]+f.window > now-d:
		snap[0] = f.start(now)
	default:
		snap[0] += d
	}
}

func (f *fixedWindow) Warm(s State, snap []int64, full Rule, now int64) {
	known, _ := f.used(snap, now)
	if known = scale(known, f.limit, full.Limit()); known == 0 {
		return
	}
	if used, _ := f.used(s, now); used == 0 {
		s[0], s[1] = snap[0], known
	} else {
		s[0], s[1] = max(s[0], snap[0]), max(used, known)
	}
}

func (f *fixedWindow) Owed(s State, c, now int64) (owed, rest int64) {
	used, _ := f.used(s, now)
	return min(c, used), 0
}

func (f *fixedWindow) Debt(s State, c, rest int64, _ Rule, now int64) (debt []int64) {
	used, _ := f.used(s, now)
	return []int64{s[0], min(c, used) - min(rest, used)}
}

func (w *slidingWindow) Live(snap []int64, now int64) bool {
	age := now/w.width - snap[0]
	for x, c := range snap[1:] {
		if int64(x) > w.parts-age {
			return false
		}
		if c > 0 {
			return true
		}
	}
	return false
}

// Raise implements [Handover]. The maximum of two sets of counters has the greater sum
// of the newest n counters, for every n.
func (w *slidingWindow) Raise(snap, other []int64, now int64) bool {
	newest := max(now/w.width, snap[0], other[0])
	w.roll(snap, newest)
	raised := false
	var mine, others, sum int64
	for x := range snap[1:] {
		if now/w.width-newest+int64(x) > w.parts {
			break // it has left the window
		}
		mine += snap[1+x]
		if at := int64(x) - (newest - other[0]); at >= 0 {
			others += other[1+at]
		}
		raised = raised || others > mine
		top := max(mine, others)
		snap[1+x], sum = top-sum, top
	}
	return raised
}

// Shift implements [Handover]. Parts are rounded down: nothing gets later than it was.
func (w *slidingWindow) Shift(snap []int64, d, _ int64) {
	by := d / w.width
	if d%w.width < 0 {
		by--
	}
	snap[0] += by
}

// Warm implements [Handover]. It scales the running sums instead of the counters,
// so that rounding loses less than one unit of cost in all.
func (w *slidingWindow) Warm(s State, snap []int64, full Rule, now int64) {
	w.roll(s, now/w.width)
	sum, before, present := int64(0), int64(0), int64(0)
	for x, c := range slices.Backward(snap[1:]) {
		age := s[0] - snap[0] + int64(x)
		if age > w.parts {
			continue // it has left the window
		}
		sum += c
		scaled := scale(sum, w.limit, full.Limit())
		if age > 0 {
			s[1+age] = max(s[1+age], scaled-before)
		} else { // with what was charged in advance
			present += scaled - before
		}
		before = scaled
	}
	s[1] = max(s[1], present)
}

func (w *slidingWindow) Owed(s State, c, now int64) (owed, rest int64) {
	_, used := w.live(s, now)
	return min(c, used), 0
}

func (w *slidingWindow) Debt(s State, c, rest int64, _ Rule, now int64) (debt []int64) {
	counters, _ := w.live(s, now)
	debt = make([]int64, w.Words())
	debt[0] = s[0]
	for x, n := range counters {
		debt[1+x] = min(n, c) - min(n, rest)
		c, rest = c-min(n, c), rest-min(n, rest)
	}
	return debt
}

var (
	_ Handover = (*meter)(nil)
	_ Handover = (*fixedWindow)(nil)
	_ Handover = (*slidingWindow)(nil)
	_ Handover = (*slidingLog)(nil)
)
