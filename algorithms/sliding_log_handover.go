package algorithms

import "slices"

// The snapshot of a log is {cost used, the last timestamp, when that was, the count, when the
// oldest timestamp leaves the window (0: there is none), runs...}. The first three start the
// fallback. The runs are a lower bound of the log, and are put back.
const (
	snapUsed = iota
	snapLast
	snapTime
	snapCount
	snapLeaves
	snapRuns
)

// logRuns is the number of runs of a snapshot, and of the newest timestamps in a view. If
// parts of the limit are leased, a snapshot has as many more, for timestamps ahead of its
// time.
const logRuns = 8

// run stands for n consecutive timestamps of a log, none of which is before at. Runs are
// in order, the newest first.
type run struct{ n, at int64 }

// runsOf returns the runs of a snapshot that are after edge, and how many timestamps they
// stand for.
func runsOf(snap []int64, edge int64) (runs []run, n int64) {
	for r := snap[snapRuns:]; len(r) > 0 && r[0] > 0 && r[1] > edge; r = r[2:] {
		runs, n = append(runs, run{r[0], r[1]}), n+r[0]
	}
	return runs, n
}

// setRuns sets the runs of a snapshot. Timestamps ahead of its time stand for what may still
// be spent, also in a window that begins after the log was lost: if they were merged with
// earlier ones, they would leave that window before it ends.
func setRuns(snap []int64, runs []run) {
	words, ahead := snap[snapRuns:], 0
	for len(words) > 2*logRuns && ahead < len(runs) && runs[ahead].at > snap[snapTime] {
		ahead++
	}
	clear(words)
	for i, r := range slices.Concat(merged(runs[:ahead]), merged(runs[ahead:])) {
		words[2*i], words[2*i+1] = r.n, r.at
	}
}

// merged returns runs of which, if they are too many, neighbors are merged that stand for the
// fewest timestamps.
func merged(runs []run) []run {
	for len(runs) > logRuns {
		least := 0
		for i := range runs[1:] {
			if runs[i].n+runs[i+1].n < runs[least].n+runs[least+1].n {
				least = i
			}
		}
		runs[least+1].n += runs[least].n
		runs = slices.Delete(runs, least, least+1)
	}
	return runs
}

// maximum returns the runs of which the i-th newest timestamp is the later of those in a
// and b, at most n in all.
func maximum(a, b []run, n int64) (all []run) {
	a, b = slices.Clone(a), slices.Clone(b)
	for n > 0 && len(a)+len(b) > 0 {
		next := run{n: n}
		for _, of := range [][]run{a, b} {
			if len(of) > 0 {
				next = run{min(next.n, of[0].n), max(next.at, of[0].at)}
			}
		}
		n -= next.n
		a, b = skip(a, next.n), skip(b, next.n)
		if last := len(all) - 1; last >= 0 && all[last].at == next.at {
			all[last].n += next.n
		} else {
			all = append(all, next)
		}
	}
	return all
}

// skip removes the first n timestamps, which are at most those of the first run.
func skip(runs []run, n int64) []run {
	if len(runs) > 0 {
		if runs[0].n -= n; runs[0].n == 0 {
			return runs[1:]
		}
	}
	return runs
}

// SnapshotWords implements [Handover].
func (l *slidingLog) SnapshotWords() int {
	if l.lease > 0 {
		return snapRuns + 2*2*logRuns
	}
	return snapRuns + 2*logRuns
}

func (l *slidingLog) Snapshot(snap []int64, s State, now int64) {
	clear(snap)
	if snap[snapTime] = now; s[3] == 0 { // a view: see logView
		return
	}
	snap[snapUsed], snap[snapLast], snap[snapCount], snap[snapLeaves] = l.limit-s[0], s[2], max(s[3], -s[3]), s[4]
	var runs []run
	if s[3] < 0 { // quantiles
		size := max(1, cd(snap[snapUsed], logRuns))
		for i, at := range s[viewWords:] {
			if n := min(size, snap[snapUsed]-int64(i)*size); n > 0 && at > 0 {
				runs = append(runs, run{n, at})
			}
		}
		setRuns(snap, runs)
		return
	}
	for _, at := range slices.Backward(s[viewWords:]) {
		if last := len(runs) - 1; last >= 0 && runs[last].at == at {
			runs[last].n++
		} else if at > 0 {
			runs = append(runs, run{1, at})
		}
	}
	setRuns(snap, runs)
}

// Live implements [Handover]. Logs with a limit above logPutBack are not put back:
// their views have no timestamps.
func (l *slidingLog) Live(snap []int64, now int64) bool {
	return snap[snapRuns] > 0 && snap[snapRuns+1] > now-l.window
}

// Lost implements [Lossy]. A log with a limit above logPutBack begins anew.
func (l *slidingLog) Lost(snap []int64, s State, now int64) int64 {
	if l.limit <= logPutBack || s[3] != 0 || snap[snapLast] <= now-l.window {
		return 0
	}
	return snap[snapUsed]
}

// Raise implements [Handover]. In the maximum of two logs the i-th newest timestamp is
// the later of the two. The other was told before: its timestamps are older by those that
// were charged since, which the count says, and which are not before the time of the other, unless
// the clock was set back.
// What was charged at that very instant has the last timestamp, which may be ahead of it.
func (l *slidingLog) Raise(snap, other []int64, now int64) bool {
	if l.limit > logPutBack { // the views have no timestamps, and what was charged since is but a part
		l.follow(snap, other)
		return false
	}
	edge := now - l.window
	mine, _ := runsOf(snap, edge)
	others, n := runsOf(other, edge)
	raised := n > snap[snapUsed]
	at := min(other[snapTime], snap[snapTime])
	if other[snapTime] == snap[snapTime] {
		at = max(at, snap[snapLast])
	}
	if since := l.since(snap, other, mine, n); since > 0 && at > edge {
		others = append([]run{{since, at}}, others...)
	}
	if len(others) == 0 {
		return false
	}
	end := int64(0)
	for _, r := range mine { // of a run, only the oldest timestamp is known exactly
		end += r.n
		raised = raised || stampAt(others, end-1) > r.at
	}
	l.follow(snap, other)
	setRuns(snap, maximum(mine, others, max(l.limit, n)))
	return raised
}

// follow copies all but the runs of other, which was told before, to a snapshot, if other is the newer of the two.
func (l *slidingLog) follow(snap, other []int64) {
	if l.overtakes(other, snap) {
		last := max(other[snapLast], snap[snapLast]) // of the runs of both
		copy(snap[:snapRuns], other)
		snap[snapLast] = last
	}
}

// overtakes says whether a snapshot that was told before another one is the newer of the two. Of one
// that was charged since, the time is earlier only if the clock was set back.
func (l *slidingLog) overtakes(before, after []int64) bool {
	n := after[snapCount] - before[snapCount]
	if n > 0 && n <= l.limit {
		return false
	}
	return before[snapTime] > after[snapTime] || before[snapTime] == after[snapTime] && n < 0
}

// since returns how many timestamps a log was charged since another snapshot of it, which has had so
// many of those in the window. A debt, a repair and what is put back break the count: then it is at least
// those that are later than the last one, unless these are old ones whose times were moved, or that were
// raised to what an instance knew by another clock. So a log that has not lost any has no more in all.
func (l *slidingLog) since(snap, other []int64, newest []run, had int64) (n int64) {
	if n = snap[snapCount] - other[snapCount]; n >= 0 && n <= l.limit {
		return n
	}
	n = 0
	for _, r := range newest {
		if r.at > other[snapLast] {
			n += r.n
		}
	}
	if left := snap[snapUsed] - had; left >= 0 {
		n = min(n, left)
	}
	return n
}

// stampAt returns the i-th newest timestamp of runs, 0 if there is none.
func stampAt(runs []run, i int64) int64 {
	for _, r := range runs {
		if i -= r.n; i < 0 {
			return r.at
		}
	}
	return 0
}

// Shift implements [Handover].
func (l *slidingLog) Shift(snap []int64, d, now int64) {
	snap[snapTime] += d
	if snap[snapLeaves] > 0 {
		snap[snapLeaves] += d
	}
	if snap[snapLast] += d; d < 0 { // the log itself is repaired, by less, up to now
		snap[snapLast] = min(snap[snapLast]-d, now)
	}
	for r := snap[snapRuns:]; len(r) > 0 && r[0] > 0; r = r[2:] {
		r[1] += d
	}
}

// Recalled implements [Partial].
func (l *slidingLog) Recalled() Rule { return recalledLog{l} }

// Recalls implements [Partial]. When the oldest timestamp leaves, more is left, and for how long a
// higher cost than one above what is left is denied only the timestamps say.
func (l *slidingLog) Recalls(snap []int64, now, cost int64) bool {
	same := snap[snapLeaves] == 0 || snap[snapLeaves] > now
	return same && (cost <= l.limit-snap[snapUsed]+1 || cost > l.limit)
}

// recalledLog is a log whose State is a snapshot.
type recalledLog struct{ *slidingLog }

func (l recalledLog) Judge(snap State, now, cost, _ int64) Verdict {
	switch {
	case cost > l.limit:
		return Verdict{Retry: Never}
	case cost > l.limit-snap[snapUsed]:
		return Verdict{Retry: snap[snapLeaves] - now}
	}
	return Verdict{Admit: true}
}

func (l recalledLog) Numbers(snap State, now int64) (remaining, reset int64) {
	if snap[snapUsed] == 0 {
		return l.limit, 0
	}
	return l.limit - snap[snapUsed], max(0, snap[snapLast]+l.window-now)
}

func (l *slidingLog) Room(snap []int64) int64 { return snap[snapUsed] }

// Warm implements [Handover]. It adds a timestamp for each unit of cost that other
// instances have charged, spread over the window, because their times are not
// known.
func (l *slidingLog) Warm(s State, snap []int64, full Rule, now int64) {
	used, last, from := snap[snapUsed], snap[snapLast], snap[snapTime]-l.window
	n := scale(used, l.limit, full.Limit())
	stamps := make([]int64, 0, n)
	for i := range n {
		if at := last - scale(last-from, i, n); at > now-l.window {
			stamps = append(stamps, min(at, now))
		}
	}
	if missing := int64(len(stamps)) - l.live(s, oldest(s, l.limit), now); missing > 0 {
		l.insert(s, stamps[:missing], now)
	}
}

// A call charges at most debtAtOnce timestamps of a debt, in debtGroups groups.
const (
	debtAtOnce = 2048
	debtGroups = 64
)

func (l *slidingLog) Owed(s State, c, now int64) (owed, rest int64) {
	owed = l.live(s, oldest(s, min(c, s[0])), now)
	return owed, max(0, owed-debtAtOnce)
}

// Debt implements [Handover]. A debt is {count, size of a group, timestamps...}: at most the limit
// of timestamps, in groups that each have the timestamp of their newest. Without this rounding a call
// for a large debt would block Redis for long.
func (l *slidingLog) Debt(s State, c, rest int64, full Rule, now int64) (debt []int64) {
	owed := l.live(s, oldest(s, min(c, s[0], full.Limit())), now)
	n := max(0, owed-rest)
	size := max(1, cd(n, debtGroups))
	debt = append(make([]int64, 0, 2+debtGroups), n, size)
	for i := s[0] - owed; n > 0; i += size {
		size = min(size, n)
		debt = append(debt, stamp(s, i+size-1))
		n -= size
	}
	return debt
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

// Interface guards
var (
	_ Lossy   = (*slidingLog)(nil)
	_ Partial = (*slidingLog)(nil)
)
