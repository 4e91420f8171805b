package redis

import (
	"container/list"
	"slices"

	"github.com/dianalimiter/diana/stores"
)

// What this instance's requests hold of a key, and what Redis knows of it, changes with these events:
//
//	event                            held, cost  due       under way  stale    charges
//	a request takes or releases      changes     next      -          last     -
//	without Redis (note)
//	a request ends (end)             less        next      -          last     more
//	its rules decide no more         not said    next      -          last     -
//	a report leaves (fill)           -           -         it too     -        -
//	two others are under way         -           -         -          -        -
//	it is stored (arrive)            and what is -         it not     -        acknowledged
//	                                 granted
//	it is of a check that is denied  -           next, if  it not     -        may have run
//	                                             renewed
//	it may have run                  -           next, of  it not     last, of may have run
//	                                             a check              a check
//	it has not run                   -           -         it not     -        -
//	a caller has left (abandon)      less        next      -          last     -
//	it is to be repeated             -           next      -          -        -
//
// While stored is less than due, Redis is to be told. What becomes of charges is in charges.go. The record is
// forgotten ([record.ended]) when nothing is held, under way and unacknowledged, no request ends, and Redis knows
// that, or has only reports that have lapsed.

// record is what this instance's requests hold of one zone's key, under rules of one
// kind.
type record struct {
	zone           stores.ZoneCheck // counter, key and tag
	value, permits string           // names of keys
	id             uint64           // of the entry in Redis

	held, cost int64 // number of permits, and the cost that they hold

	// Whether checks of the key are decided under rules of another kind now. Its permits count
	// until they are given back; its cost is held of counts that nobody asks any more.
	replaced bool

	charges charges

	// told is the cost that Redis holds for this instance at least since it was told last. If the instance
	// was silent for so long that others were charged that in its place, it is prepaid: responses charge what is more.
	told, prepaid int64

	last     sent   // the last report; its number is 0 if there was none
	underWay []sent // reports that are not answered
	due      int64  // the number of the first report that Redis must receive
	stored   int64  // the number of the last report that Redis has stored; 0: it has stored none
	kept     int64  // when that left
	stale    int64  // when the last report with other contents was sent; 0: none was

	ending    int           // requests whose calls report it
	renewing  chan struct{} // closed when a renewal has reported it; nil: none does
	round     uint64        // of renewals, the last that included it
	at        int64         // when it was put at the end of ages
	age, late *list.Element // of the permits' lists; nil: it is in none
}

// sent is a report that has left.
type sent struct {
	number  int64
	left    int64 // when
	charges int64 // that it reports, in total
	cost    int64 // that it says is held
}

// changed notes a change that Redis does not know by itself, before the report next.
func (rec *record) changed(next int64) {
	rec.due, rec.stale = next, rec.last.left
}

// repeat makes report next contain again what was reported before.
func (rec *record) repeat(next int64) { rec.due = next }

// isKnown says whether Redis knows what is held.
func (rec *record) isKnown() bool { return rec.stored >= rec.due }

// leaves notes that a report leaves, unless so many are under way that it could not name the others.
func (rec *record) leaves(number, now int64) bool {
	if len(rec.underWay) == callsInFlight {
		return false
	}
	rec.last = sent{number, now, rec.charges.total, rec.heldCost()}
	rec.underWay = append(rec.underWay, rec.last)
	return true
}

// arrived notes that a report is not under way any more, and whether it may have run.
func (rec *record) arrived(s sent, mayHaveRun bool) {
	rec.underWay = slices.DeleteFunc(rec.underWay, func(o sent) bool { return o.number == s.number })
	if mayHaveRun && s.number != overtaken {
		rec.charges.mayHaveRun(s.charges)
		rec.told = min(rec.told, s.cost)
	}
}

// isStored notes that Redis has stored a report.
func (rec *record) isStored(s sent) {
	if s.number >= rec.stored {
		rec.told = s.cost
	}
	rec.stored = max(rec.stored, s.number)
	rec.kept = max(rec.kept, s.left)
	rec.charges.acknowledge(s.charges, s.left)
}

// isMissing notes that Redis has no entry of this instance, though it had one.
func (rec *record) isMissing(now int64) (lost bool) {
	if now-rec.kept < 2*unsure.Microseconds() {
		return true
	}
	rec.prepaid, rec.told = rec.prepaid+rec.told, 0
	return false
}

// unpaid returns what of a charge is not prepaid, and takes off the rest.
func (rec *record) unpaid(charge int64) int64 {
	paid := min(charge, rec.prepaid)
	rec.prepaid -= paid
	return charge - paid
}

// denied says, when a check was denied, whether another report has to renew what is held: that of the
// check is not stored.
func (rec *record) denied(s sent) (renew bool) {
	return (rec.held != 0 || rec.cost != 0) && rec.isKnown() && s.left-rec.kept >= renewEvery.Microseconds()
}

// ended says whether Redis need not be told of the record any more.
func (rec *record) ended(now int64) bool {
	lapsed := rec.stale == 0 || now-rec.stale > lapse.Microseconds()
	return rec.held == 0 && rec.cost == 0 && rec.ending == 0 && len(rec.underWay) == 0 &&
		rec.charges.acknowledged() && (rec.isKnown() || lapsed)
}

// recordLists are lists of records.
type recordLists struct {
	ages list.List // of all records, by when they were last to be reported
	late list.List // of those of which Redis is to be told soon
}

// touch notes that a record is reported at a time.
func (l *recordLists) touch(rec *record, now int64) {
	rec.at = now
	if rec.age == nil {
		rec.age = l.ages.PushBack(rec)
	} else {
		l.ages.MoveToBack(rec.age)
	}
}

// unlist removes a record from the lists.
func (l *recordLists) unlist(rec *record) {
	remove(&l.ages, &rec.age)
	remove(&l.late, &rec.late)
}

// oldest returns the first record of a list, nil if there is none.
func oldest(l *list.List) *record {
	if e := l.Front(); e != nil {
		return e.Value.(*record) //nolint:forcetypeassert // nothing else is stored there
	}
	return nil
}

// remove removes a record from a list, if it is in it.
func remove(l *list.List, at **list.Element) {
	if *at != nil {
		l.Remove(*at)
		*at = nil
	}
}

// A report has room for the number of one other. This does not compile if a batcher has more calls in
// flight.
var _ [2]struct{} = [callsInFlight]struct{}{}

// overtaken is the number of a report that leaves while two others are under way, because the calls
// with its key go through the batchers of two nodes: a Cluster's slots have just become known, or a slot
// is moved. Redis ignores the report, and has the check made again.
const overtaken = -1

// other returns the number of the report that is under way beside the last one, or 0.
func (rec *record) other() int64 {
	for _, s := range rec.underWay {
		if s.number != rec.last.number {
			return s.number
		}
	}
	return 0
}

// reported returns the greatest total of charges that a report under way has.
func (rec *record) reported() (charges int64) {
	for _, s := range rec.underWay {
		charges = max(charges, s.charges)
	}
	return charges
}

// heldCost returns the cost that counts for checks of the key.
func (rec *record) heldCost() int64 {
	if rec.replaced {
		return 0
	}
	return rec.cost
}

// report is the part of a call that reports what this instance's requests hold of a
// key. It is filled in when the call leaves, because until then other requests may
// begin and end.
type report struct {
	counter *stores.Counter
	key     stores.Key
	tag     stores.Key
	op, at  int // the operation, and where its report lies in it

	permit *stores.Permit // of a check, to be set if it is granted; nil: the report is not part of a check
	cost   int64          // that the permit holds
	reply  int            // index of the zone in the replies

	rec     *record
	sent    sent
	granted bool
}
