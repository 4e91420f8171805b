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

// At returns the instant at another time of this process, as it is estimated by this one.
func (i Instant) At(local int64) Instant {
	return Instant{local, local + i.Shared - i.Local, i.Tolerance}
}

// stepped returns by how much Redis' clock was set since it was ahead by offset; 0: it was not.
func (i Instant) stepped(offset int64) int64 {
	if d := i.Shared - i.Local - offset; max(d, -d) > i.Tolerance {
		return d
	}
	return 0
}

// snapshot is {key, key, marks, time, since, offset, the tag (see [Table.KeepTags]), and
// the snapshot of each rule}, what Redis last said of a key. What the key owes is beside its states (see layout).
//
// The snapshots of the rules are on Redis' clock. Time is when they were told last, or the key was charged since (Ask): a
// reply that is older has been overtaken. Since is when they were told first: a reset after it refuses them. They
// differ once Redis has reported less, or a reply was overtaken. Offset is by how much time was ahead of this process' clock when the call
// left, so that the estimate by both is never behind Redis' clock; it differs by key, as calls and nodes do.
type snapshot []int64

// The words of a snapshot before the tag and those of the rules.
const (
	snapshotMarks = keyWords + iota
	snapshotTime
	snapshotSince
	snapshotOffset
	snapshotWords
)

// The marks of a snapshot. Above them is the Override of its counter.
const (
	markTold      = 1 << iota // the rules' snapshots are valid
	markLost                  // Redis has reported less: to be put back with the next check
	markWarm                  // the key's states in the table were raised to this instance's share of it
	markFull                  // less was left than the cost that Redis was asked for last
	markCharged               // Redis has charged the key since, and did not say what is left
	markOwes                  // the key's slot in the table may have a debt
	overrideShift = iota
	allMarks      = 1<<overrideShift - 1
)

func (x snapshot) has(mark int64) bool { return x[snapshotMarks]&mark != 0 }

// owes says whether Redis has not been told of something that was charged to the key.
func (x snapshot) owes() bool { return x.has(markOwes) }

// setOwed sets what the key owes, of which nothing counts any more if it has no slot.
func (x snapshot) setOwed(slot []int64, cost int64) {
	x[snapshotMarks] &^= markOwes
	if slot == nil {
		return
	}
	if slot[slotOwed] = cost; cost > 0 {
		x[snapshotMarks] |= markOwes
	}
}

// due reports whether there is something to hand over.
func (x snapshot) due() bool { return x.has(markLost | markWarm | markOwes) }

// asked returns when the call left that told the snapshots of the rules last, by the clock of this process.
func (x snapshot) asked() int64 { return x[snapshotTime] - x[snapshotOffset] }

// override returns the Override of the counter under which the key was last or, while it owes, of the
// greatest of those that charged it.
func (x snapshot) override() int64 { return x[snapshotMarks] >> overrideShift }

// snapshotLayout defines where the words of each rule lie in a snapshot.
type snapshotLayout []ruleWords

// ruleWords are the words of one rule.
type ruleWords struct {
	told, end int
	lossy     bool // whether it is [algorithms.Lossy]
}

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

// lost returns the cost that a snapshot has by one of a zone's rules, and that by what Redis reports of the zone is lost
// and not put back.
func (l snapshotLayout) lost(x snapshot, z *stores.ZoneCheck, now int64) (cost int64) {
	for i, r := range z.Rules {
		if l[i].lossy {
			cost = max(cost, r.(algorithms.Lossy).Lost(l.told(x, i), z.Results[i].State, now))
		}
	}
	return cost
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
