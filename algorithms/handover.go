package algorithms

import (
	"math/bits"
	"slices"
)

// Handover is a [Rule] whose state can be handed over from the shared store to the
// local fallback of an instance, and back. A rule without it starts at
// zero in the fallback, and what is admitted there is not charged later.
//
// For the handover, an instance keeps a snapshot of each key: first the
// last known state in the shared store; in the fallback, the part of the local state
// that is not to be charged to the shared store.
type Handover interface {
	Rule

	// SnapshotWords returns the length of a snapshot.
	SnapshotWords() int

	// Snapshot sets the snapshot to s, a state of this rule in the shared store; of a
	// [Growing] rule, a state of its View.
	Snapshot(snap []int64, s State, now int64)

	// Room returns the cost that a growing state must have room for before Warm.
	Room(snap []int64) int64

	// Warm raises s to this rule's share of the snapshot. The rule is a share of
	// the rule full.
	Warm(s State, snap []int64, full Rule, now int64)

	// Base sets the snapshot to s: nothing of s is to be charged later.
	Base(snap []int64, s State)

	// Forgive adds a charge to the snapshot, because the shared store may have been
	// charged already.
	Forgive(snap []int64, now, cost, turn int64)

	// Debt returns what was charged to s beyond the snapshot, as Merge and the
	// decision function in Lua take it, and whether that is more than nothing.
	Debt(s State, snap []int64, now int64) (debt []int64, owes bool)

	// Merge charges a debt to s, whatever the verdict. A growing state has room
	// for it.
	Merge(s State, debt []int64, now int64)
}

// scale returns v*part/whole, rounded down. part is at most whole.
func scale(v, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(v), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}

func (m *meter) Room([]int64) int64                      { return 0 }
func (m *meter) SnapshotWords() int                      { return meterWords }
func (m *meter) Snapshot(snap []int64, s State, _ int64) { copy(snap, s) }
func (m *meter) Base(snap []int64, s State)              { copy(snap, s) }

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

func (m *meter) Forgive(snap []int64, now, cost, turn int64) { m.Charge(snap, now, cost, turn) }

func (m *meter) Debt(s State, snap []int64, now int64) ([]int64, bool) {
	t := m.at(now)
	owed := max(0, m.level(s, t)-m.level(snap, t))
	return []int64{cd(owed, m.w)}, owed > 0
}

func (m *meter) Merge(s State, debt []int64, now int64) { m.raise(s, now, debt[0], 1) }

func (f *fixedWindow) Room([]int64) int64                      { return 0 }
func (f *fixedWindow) SnapshotWords() int                      { return f.Words() }
func (f *fixedWindow) Snapshot(snap []int64, s State, _ int64) { copy(snap, s) }
func (f *fixedWindow) Base(snap []int64, s State)              { copy(snap, s) }

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

func (f *fixedWindow) Forgive(snap []int64, now, cost, _ int64) { f.add(snap, now, cost) }

func (f *fixedWindow) Debt(s State, snap []int64, now int64) ([]int64, bool) {
	used, _ := f.used(s, now)
	if not, _ := f.used(snap, now); not > 0 && snap[0] == s[0] {
		used -= not
	}
	return []int64{s[0], max(0, used)}, used > 0
}

// Merge implements [Handover]. It charges a window that is open, up to the limit.
func (f *fixedWindow) Merge(s State, debt []int64, now int64) {
	start := min(debt[0], f.start(now))
	used, _ := f.used(s, now)
	cost := min(debt[1], max(0, f.limit-used))
	if cost == 0 || start+f.window <= now {
		return
	}
	if used == 0 {
		s[0] = start
	}
	s[1] = used + cost
}

func (w *slidingWindow) Room([]int64) int64                      { return 0 }
func (w *slidingWindow) SnapshotWords() int                      { return w.Words() }
func (w *slidingWindow) Snapshot(snap []int64, s State, _ int64) { copy(snap, s) }
func (w *slidingWindow) Base(snap []int64, s State)              { copy(snap, s) }

// Warm implements [Handover]. It scales the running sums instead of the counters,
// so that rounding loses less than one unit of cost in all.
func (w *slidingWindow) Warm(s State, snap []int64, full Rule, now int64) {
	w.add(s, now, 0)
	if snap[0] == s[0]+1 { // charged in advance: it counts in the present part
		snap[2] += snap[1]
		copy(snap[1:], snap[2:])
		snap[len(snap)-1] = 0
	}
	snap[0] = min(snap[0], s[0])
	counters, _ := w.live(snap, now)
	offset := s[0] - snap[0]
	sum, before := int64(0), int64(0)
	for x, c := range slices.Backward(counters) {
		sum += c
		scaled := scale(sum, w.limit, full.Limit())
		if i := int64(x) + offset; i >= 0 {
			s[1+i] = max(s[1+i], scaled-before)
		}
		before = scaled
	}
}

func (w *slidingWindow) Forgive(snap []int64, now, cost, _ int64) { w.add(snap, now, cost) }

func (w *slidingWindow) Debt(s State, snap []int64, now int64) ([]int64, bool) {
	counters, _ := w.live(s, now)
	debt := make([]int64, w.Words())
	debt[0] = s[0]
	offset, owes := snap[0]-s[0], false
	for x, c := range counters {
		if i := int64(x) + offset; i >= 0 && i <= w.parts {
			c = max(0, c-snap[1+i])
		}
		debt[1+x] = c
		owes = owes || c > 0
	}
	return debt, owes
}

// Merge implements [Handover]. It charges each counter by its age, up to twice the
// limit in all.
func (w *slidingWindow) Merge(s State, debt []int64, now int64) {
	w.add(s, now, 0)
	_, used := w.live(s, now)
	for x, c := range debt[1:] {
		age := max(0, s[0]-debt[0]+int64(x))
		if c = w.owed(used, c); c > 0 && age < int64(len(s)-1) {
			s[1+age] += c
			used += c
		}
	}
}

// SnapshotWords implements [Handover]. The snapshot of a log is {cost used, the last
// timestamp, when the snapshot was taken}; in the fallback, its first word is the
// count of timestamps that are not to be charged later.
func (l *slidingLog) SnapshotWords() int { return 3 }

func (l *slidingLog) Room(snap []int64) int64 { return snap[0] }

func (l *slidingLog) Snapshot(snap []int64, s State, now int64) {
	snap[0], snap[1], snap[2] = 0, 0, now
	if s[3] != 0 { // a view: see logView
		snap[0], snap[1] = max(0, l.limit-s[0]), s[2]
	}
}

func (l *slidingLog) Base(snap []int64, s State)             { snap[0] = s[0] }
func (l *slidingLog) Forgive(snap []int64, _, cost, _ int64) { snap[0] += min(cost, l.limit) }

// Warm implements [Handover]. It adds a timestamp for each unit of cost that other
// instances have charged, spread over the window, because their times are not
// known.
func (l *slidingLog) Warm(s State, snap []int64, full Rule, now int64) {
	used, last, from := snap[0], snap[1], snap[2]-l.window
	n := scale(used, l.limit, full.Limit())
	stamps := make([]int64, 0, n)
	for i := range n {
		if at := last - scale(last-from, i, n); at > now-l.window {
			stamps = append(stamps, min(at, now))
		}
	}
	if missing := int64(len(stamps)) - l.live(s, oldest(s, l.limit), now); missing > 0 {
		l.merge(s, stamps[:missing], now)
	}
}

func (l *slidingLog) Debt(s State, snap []int64, now int64) ([]int64, bool) {
	n := l.live(s, oldest(s, max(0, min(l.limit, s[0]-snap[0]))), now)
	debt := append(make([]int64, 0, 1+n), n)
	for i := s[0] - n; i < s[0]; i++ {
		debt = append(debt, stamp(s, i))
	}
	return debt, n > 0
}

func (l *slidingLog) Merge(s State, debt []int64, now int64) { l.merge(s, debt[1:], now) }

// merge inserts timestamps among those in the window, in order. It keeps those above
// the limit as well, because the limit may be raised; their number is bounded by the
// shares of the instances. It zeroes those that have left the window: the last
// timestamp is before now, so that a clock that is set back would bring back as many
// of them as the ring has.
func (l *slidingLog) merge(s State, stamps []int64, now int64) {
	live := l.live(s, oldest(s, s[0]), now)
	all := make([]int64, 0, live+int64(len(stamps)))
	for i := s[0] - live; i < s[0]; i++ {
		all = append(all, stamp(s, i))
	}
	for _, at := range stamps {
		if at > now-l.window {
			all = append(all, min(at, now))
		}
	}
	if int64(len(all)) == live {
		return
	}
	for i := oldest(s, s[0]); i < s[0]-live; i++ {
		setStamp(s, i, 0)
	}
	slices.Sort(all)
	s[0] += int64(len(all)) - live
	for i, at := range all {
		setStamp(s, s[0]-int64(len(all)-i), at)
	}
}

var (
	_ Handover = (*meter)(nil)
	_ Handover = (*fixedWindow)(nil)
	_ Handover = (*slidingWindow)(nil)
	_ Handover = (*slidingLog)(nil)
)
