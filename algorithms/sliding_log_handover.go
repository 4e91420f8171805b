package algorithms

import "slices"

// quantiles are the timestamps of a log in a few words: the newest n timestamps in
// logParts groups of equal size, each with the timestamp of its oldest. The i-th
// newest timestamp is therefore never before what they say.
type quantiles struct {
	n  int64
	at []int64 // of each group, the newest first; 0: there is none
}

// logParts is the number of groups.
const logParts = 8

// size returns the size of a group; the last ones may be smaller.
func (q quantiles) size() int64 { return max(1, cd(q.n, logParts)) }

// stamp returns the i-th newest timestamp, 0 if there is none. The newest is number 0.
func (q quantiles) stamp(i int64) int64 {
	if i >= q.n {
		return 0
	}
	return q.at[i/q.size()]
}

// set sets the groups from the timestamps.
func (q quantiles) set(stamp func(i int64) int64) {
	size := q.size()
	for k := range q.at {
		q.at[k] = 0
		if first := int64(k) * size; first < q.n {
			q.at[k] = stamp(min(first+size, q.n) - 1)
		}
	}
}

// after returns how many of the timestamps are after edge.
func (q quantiles) after(edge int64) int64 {
	groups := int64(0)
	for groups < logParts && q.at[groups] > edge {
		groups++
	}
	return min(groups*q.size(), q.n)
}

// A snapshot of a log is {n, quantiles...}, its base the count of timestamps.

func (l *slidingLog) SnapshotWords() int { return 1 + logParts }
func (l *slidingLog) BaseWords() int     { return 1 }

func logSnapshot(snap []int64) quantiles { return quantiles{snap[0], snap[1:]} }

func (l *slidingLog) Snapshot(snap []int64, s State, _ int64) {
	clear(snap)
	if s[3] != 0 { // a view: see logView
		snap[0] = l.limit - s[0]
		copy(snap[1:], s[viewWords:])
	}
}

// Live implements [Handover]. Logs of more than logAtOnce timestamps are not put back.
func (l *slidingLog) Live(snap []int64, now int64) bool {
	return l.limit <= logAtOnce && logSnapshot(snap).after(now-l.window) > 0
}

// Raise implements [Handover]. In the maximum of two logs the i-th newest timestamp is
// the later of the two. Only the groups' own timestamps are exact, so that only by
// these the other is found to be greater.
func (l *slidingLog) Raise(snap, other []int64, now int64) bool {
	a, b := logSnapshot(snap), logSnapshot(other)
	edge := now - l.window
	had, more := a.after(edge), b.after(edge)
	raised := more > had
	for i := a.size() - 1; i < had; i += a.size() {
		raised = raised || b.stamp(i) > a.stamp(i)
	}
	mine := quantiles{had, append(make([]int64, 0, logParts), a.at...)}
	size := a.size()
	a.n = max(had, more)
	snap[0] = a.n
	a.set(func(i int64) int64 {
		at := int64(0)
		if i < had {
			at = mine.at[i/size]
		}
		if i < more {
			at = max(at, b.stamp(i))
		}
		return at
	})
	return raised
}

// Shift implements [Handover].
func (l *slidingLog) Shift(snap []int64, d int64) {
	for i := range snap[1:] {
		if snap[1+i] > 0 {
			snap[1+i] += d
		}
	}
}

func (l *slidingLog) Room(snap []int64) int64 { return snap[0] }

// Warm implements [Handover]. It adds timestamps for the cost that other instances
// have charged, spread as the snapshot's are.
func (l *slidingLog) Warm(s State, snap []int64, full Rule, now int64) {
	q := logSnapshot(snap)
	used := q.after(now - l.window)
	n := scale(used, l.limit, full.Limit())
	missing := n - l.live(s, oldest(s, l.limit), now)
	if missing <= 0 {
		return
	}
	stamps := make([]int64, 0, missing)
	for i := range missing {
		stamps = append(stamps, q.stamp(scale(used, i, n)))
	}
	l.insert(s, stamps, now)
}

func (l *slidingLog) Base(base []int64, s State)             { base[0] = s[0] }
func (l *slidingLog) Forgive(base []int64, _, cost, _ int64) { base[0] += cost }

// debtGroups is the number of groups of a debt.
const debtGroups = 128

// Debt implements [Handover]. A debt is {count, size of a group, timestamps...}: the
// oldest timestamps that are owed, in groups that each have the timestamp of their
// newest. Without this rounding a call for a large debt would block Redis for long.
func (l *slidingLog) Debt(s State, base []int64, _ Rule, now int64) (debt []int64, owes, more bool) {
	owed := l.live(s, oldest(s, max(0, min(l.limit, s[0]-base[0]))), now)
	n := min(owed, logAtOnce)
	size := max(1, cd(n, debtGroups))
	debt = append(make([]int64, 0, 2+debtGroups), n, size)
	for i := s[0] - owed; n > 0; i += size {
		size = min(size, n)
		debt = append(debt, stamp(s, i+size-1))
		n -= size
	}
	base[0] = s[0] - owed + debt[0]
	return debt, owed > 0, owed > debt[0]
}

// Merge implements [Handover].
func (l *slidingLog) Merge(s State, debt []int64, now int64) {
	n, size := debt[0], debt[1]
	stamps := make([]int64, 0, n)
	for _, at := range debt[2:] {
		for range min(size, n) {
			stamps = append(stamps, at)
		}
		n -= size
	}
	l.insert(s, stamps, now)
}

// newestOnly is how many of the newest timestamps are looked at to insert others,
// which count as new as the oldest of these, so that the work is bounded.
const newestOnly = 1024

// insert inserts timestamps among those in the window, in order. It keeps those above
// the limit as well, because the limit may be raised; their number is bounded by the
// shares of the instances. It zeroes those that have left the window: the last
// timestamp is before now, so that a clock that is set back would bring back as many
// of them as the ring has.
func (l *slidingLog) insert(s State, stamps []int64, now int64) {
	live := l.live(s, oldest(s, s[0]), now)
	first := s[0] - min(live, newestOnly)
	least := int64(0)
	if live > newestOnly {
		least = stamp(s, first)
	}
	all := make([]int64, 0, s[0]-first+int64(len(stamps)))
	for i := first; i < s[0]; i++ {
		all = append(all, stamp(s, i))
	}
	had := len(all)
	for _, at := range stamps {
		if at > now-l.window {
			all = append(all, min(max(at, least), now))
		}
	}
	if len(all) == had {
		return
	}
	for i := oldest(s, s[0]); i < s[0]-live; i++ {
		setStamp(s, i, 0)
	}
	slices.Sort(all)
	s[0] += int64(len(all) - had)
	for i, at := range all {
		setStamp(s, s[0]-int64(len(all)-i), at)
	}
}
