package memory

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Instant is an instant on two clocks, in microseconds.
type Instant struct {
	Local  int64 // on the clock of this process
	Shared int64 // on Redis' clock: what it reported, or an estimate

	// Tolerance is by how much an estimate of Redis' clock may be wrong. Redis' clock
	// was set if it differs by more.
	Tolerance int64
}

// stepped returns by how much Redis' clock was set since it was ahead by offset; 0: it was not.
func (i Instant) stepped(offset int64) int64 {
	if d := i.Shared - i.Local - offset; max(d, -d) > i.Tolerance {
		return d
	}
	return 0
}

// snapshot is {key, key, marks, time, since, owed, owing, offset, the tag (see [Table.KeepTags]), and
// the snapshot of each rule}.
// The snapshots of the rules are on Redis' clock. Time is when they were told last, and offset by how much
// that was ahead of this process' clock when the call left, so that the estimate by both is never behind Redis'
// clock; since is when they were told first. The cost owed was charged to the key's states in the table, at
// the time owing and later, and Redis has not been told.
type snapshot []int64

// The words of a snapshot before the tag and those of the rules.
const (
	snapshotMarks = keyWords + iota
	snapshotTime
	snapshotSince
	snapshotOwed
	snapshotOwing
	snapshotOffset
	snapshotWords
)

// The marks of a snapshot. Above them is the Override of its counter.
const (
	markTold      = 1 << iota // the rules' snapshots are valid
	markLost                  // Redis has reported less: to be put back with the next check
	markWarm                  // the key's states in the table were raised to this instance's share of it
	markFull                  // less was left than the cost that Redis was asked for last
	overrideShift = iota
	allMarks      = 1<<overrideShift - 1
)

// mostOwed is the most cost that a key owes, far above what any rule counts.
const mostOwed = 1 << 52

func (x snapshot) key() stores.Key { return stores.Key{Hi: uint64(x[0]), Lo: uint64(x[1])} }

func (x snapshot) has(mark int64) bool { return x[snapshotMarks]&mark != 0 }

// owes says whether Redis has not been told of something that was charged to the key.
func (x snapshot) owes() bool { return x[snapshotOwed] > 0 }

// owe adds a cost that was charged at a time and later.
func (x snapshot) owe(cost, since int64) {
	if !x.owes() || since < x[snapshotOwing] {
		x[snapshotOwing] = since
	}
	x[snapshotOwed] = min(x[snapshotOwed]+cost, mostOwed)
}

// due reports whether there is something to hand over.
func (x snapshot) due() bool { return x.has(markLost|markWarm) || x.owes() }

// asked returns when the call left that told the snapshots of the rules last, by the clock of this process.
func (x snapshot) asked() int64 { return x[snapshotTime] - x[snapshotOffset] }

// override returns the Override of the counter under which the key was last or, while it owes, of the
// greatest of those that charged it.
func (x snapshot) override() int64 { return x[snapshotMarks] >> overrideShift }

// snapshotLayout defines where the words of each rule lie in a snapshot.
type snapshotLayout []ruleWords

// ruleWords are the words of one rule.
type ruleWords struct{ told, end int }

// told returns the snapshot of one rule.
func (l snapshotLayout) told(x snapshot, rule int) []int64 {
	return x[l[rule].told:l[rule].end]
}

// live says whether a snapshot still counts, by the clock that it is on.
func (l snapshotLayout) live(x snapshot, rules []algorithms.Rule, local int64) bool {
	if x.has(markTold) {
		for i, r := range rules {
			if r.(algorithms.Handover).Live(l.told(x, i), local+x[snapshotOffset]) {
				return true
			}
		}
	}
	return false
}

// recallable reports whether rules judge the snapshots of a key, or [algorithms.Partial] ones in their place. The
// views of a [algorithms.Growing] rule of another module are no states.
func (l snapshotLayout) recallable(x snapshot, rules []algorithms.Rule) bool {
	for i, r := range rules {
		if _, ok := r.(algorithms.Partial); ok {
			continue
		}
		if _, grows := r.(algorithms.Growing); grows || len(l.told(x, i)) != r.Words() {
			return false
		}
	}
	return true
}

// clearTold forgets the snapshots of the rules, and their time.
func (l snapshotLayout) clearTold(x snapshot) {
	for i := range l {
		clear(l.told(x, i))
	}
	x[snapshotTime] = 0
}

// follow moves a snapshot if Redis' clock was set.
func (l snapshotLayout) follow(x snapshot, rules []algorithms.Rule, now Instant) {
	d := now.stepped(x[snapshotOffset])
	if d == 0 {
		return
	}
	for i, r := range rules {
		r.(algorithms.Handover).Shift(l.told(x, i), d, now.Shared)
	}
	x[snapshotTime] += d
	x[snapshotOffset] += d
	x[snapshotSince] += min(d, 0) // it may have been reset before
}
