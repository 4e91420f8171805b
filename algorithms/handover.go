package algorithms

import (
	"math/bits"
	"slices"
)

// Portable is a [Rule] whose counts can be carried from the store that all
// instances share to one instance that has to go on alone, and back. A rule that
// is not goes on from zero, and what it admits alone is forgotten.
//
// A note is the words that an instance keeps of one key for this: first what
// the shared store last said of it, then, once the instance is alone, the part
// of its own state that it does not owe.
type Portable interface {
	Rule

	// NoteWords is the length of a note.
	NoteWords() int

	// Note writes down s, a state of this rule as the shared store keeps it, or
	// of its View if the rule is [Growing].
	Note(note []int64, s State, now int64)

	// Room is the cost that a growing state must have room for before Warm.
	Room(note []int64) int64

	// Warm raises s, the state of this rule, which is a share of the rule
	// full, to the same share of what was noted.
	Warm(s State, note []int64, full Rule, now int64)

	// Base makes s the part of itself that is not owed.
	Base(note []int64, s State)

	// Forgive adds a charge to the part that is not owed, because the shared
	// store may have it already.
	Forgive(note []int64, now, cost, turn int64)

	// Debt is what was charged to s and is owed, as numbers that Merge and the
	// Lua judge take, and whether that is anything.
	Debt(s State, note []int64, now int64) (debt []int64, owes bool)

	// Merge charges a debt to s, whatever a verdict would be. A growing state
	// has room for it.
	Merge(s State, debt []int64, now int64)
}

// scale is v times part over whole, rounded down; part is at most whole.
func scale(v, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(v), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}

func (m *meter) Room([]int64) int64                  { return 0 }
func (m *meter) NoteWords() int                      { return meterWords }
func (m *meter) Note(note []int64, s State, _ int64) { copy(note, s) }
func (m *meter) Base(note []int64, s State)          { copy(note, s) }

// Warm takes over how long the shared level needs to drain: the share drains
// as much slower as it holds less.
func (m *meter) Warm(s State, note []int64, _ Rule, now int64) {
	t := m.at(now)
	ahead := note[0] - t
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

func (m *meter) Forgive(note []int64, now, cost, turn int64) { m.Charge(note, now, cost, turn) }

func (m *meter) Debt(s State, note []int64, now int64) ([]int64, bool) {
	t := m.at(now)
	owed := max(0, m.level(s, t)-m.level(note, t))
	return []int64{cd(owed, m.w)}, owed > 0
}

func (m *meter) Merge(s State, debt []int64, now int64) { m.raise(s, now, debt[0], 1) }

func (f *fixedWindow) Room([]int64) int64                  { return 0 }
func (f *fixedWindow) NoteWords() int                      { return f.Words() }
func (f *fixedWindow) Note(note []int64, s State, _ int64) { copy(note, s) }
func (f *fixedWindow) Base(note []int64, s State)          { copy(note, s) }

func (f *fixedWindow) Warm(s State, note []int64, full Rule, now int64) {
	known, _ := f.used(note, now)
	if known = scale(known, f.limit, full.Limit()); known == 0 {
		return
	}
	if used, _ := f.used(s, now); used == 0 {
		s[0], s[1] = note[0], known
	} else {
		s[0], s[1] = max(s[0], note[0]), max(used, known)
	}
}

func (f *fixedWindow) Forgive(note []int64, now, cost, _ int64) { f.add(note, now, cost) }

func (f *fixedWindow) Debt(s State, note []int64, now int64) ([]int64, bool) {
	used, _ := f.used(s, now)
	if not, _ := f.used(note, now); not > 0 && note[0] == s[0] {
		used -= not
	}
	return []int64{s[0], max(0, used)}, used > 0
}

// Merge charges only into a window that is still open, up to the limit.
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

func (w *slidingWindow) Room([]int64) int64                  { return 0 }
func (w *slidingWindow) NoteWords() int                      { return w.Words() }
func (w *slidingWindow) Note(note []int64, s State, _ int64) { copy(note, s) }
func (w *slidingWindow) Base(note []int64, s State)          { copy(note, s) }

// Warm scales the sum up to each counter, so that what is lost by rounding is
// less than one request in all.
func (w *slidingWindow) Warm(s State, note []int64, full Rule, now int64) {
	w.add(s, now, 0)
	if note[0] == s[0]+1 { // charged in advance: what that part has taken counts now
		note[2] += note[1]
		copy(note[1:], note[2:])
		note[len(note)-1] = 0
	}
	note[0] = min(note[0], s[0])
	counters, _ := w.live(note, now)
	offset := s[0] - note[0]
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

func (w *slidingWindow) Forgive(note []int64, now, cost, _ int64) { w.add(note, now, cost) }

func (w *slidingWindow) Debt(s State, note []int64, now int64) ([]int64, bool) {
	counters, _ := w.live(s, now)
	debt := make([]int64, w.Words())
	debt[0] = s[0]
	offset, owes := note[0]-s[0], false
	for x, c := range counters {
		if i := int64(x) + offset; i >= 0 && i <= w.parts {
			c = max(0, c-note[1+i])
		}
		debt[1+x] = c
		owes = owes || c > 0
	}
	return debt, owes
}

// Merge charges every counter by its age, up to twice the limit together.
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

// The note of a log is {places in use, the last stamp, when that was said}, and
// then the count of stamps that are not owed.
func (l *slidingLog) NoteWords() int { return 3 }

func (l *slidingLog) Room(note []int64) int64 { return note[0] }

func (l *slidingLog) Note(note []int64, s State, now int64) {
	note[0], note[1], note[2] = 0, 0, now
	if s[3] != 0 { // a view: see logView
		note[0], note[1] = max(0, l.limit-s[0]), s[2]
	}
}

func (l *slidingLog) Base(note []int64, s State)             { note[0] = s[0] }
func (l *slidingLog) Forgive(note []int64, _, cost, _ int64) { note[0] += cost }

// Warm adds stamps for what others were admitted. When each was is not known,
// so they are spread over the window that they were in.
func (l *slidingLog) Warm(s State, note []int64, full Rule, now int64) {
	used, last, from := note[0], note[1], note[2]-l.window
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

func (l *slidingLog) Debt(s State, note []int64, now int64) ([]int64, bool) {
	n := l.live(s, oldest(s, max(0, min(l.limit, s[0]-note[0]))), now)
	debt := append(make([]int64, 0, 1+n), n)
	for i := s[0] - n; i < s[0]; i++ {
		debt = append(debt, stamp(s, i))
	}
	return debt, n > 0
}

func (l *slidingLog) Merge(s State, debt []int64, now int64) { l.merge(s, debt[1:], now) }

// merge puts stamps among those that are still in the window, by age. None is
// lost, even beyond the limit: a larger one may look at it. What instances admit
// alone in a window is no more than their shares, so that it stays bounded. What
// has left the window is wiped out: the last stamp is not of now, so a clock set
// back would find again as much of it as the ring happens to have kept.
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
	_ Portable = (*meter)(nil)
	_ Portable = (*fixedWindow)(nil)
	_ Portable = (*slidingWindow)(nil)
	_ Portable = (*slidingLog)(nil)
)
