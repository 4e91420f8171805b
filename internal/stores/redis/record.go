package redis

import (
	"container/list"
	"slices"

	"github.com/dianalimiter/diana/stores"
)

// A record changes with these events. due becomes the number of the next report, and stale the time when the last one
// left:
//
//	event                               held, cost        due                under way  stale             charges
//	a request takes or releases         changed           next               -          last              -
//	without Redis (note)
//	a request ends (end)                reduced           next               -          last              added
//	rules of another kind decide        cost is reported  next               -          last              -
//	the key (replace)                   as 0
//	a report leaves (fill)              -                 -                  added      -                 -
//	a report leaves while two others    -                 -                  -          -                 -
//	are under way (overtaken)
//	Redis has stored the report         granted is added  -                  removed    -                 acknowledged
//	(arrive)
//	Redis has denied the check of       -                 next if it renews  removed    -                 may have run
//	the report
//	the report may have run             -                 next if of a check removed    last if of a check may have run
//	the report has not run              -                 -                  removed    -                 -
//	a caller did not wait (abandon)     reduced           next               -          last              -
//	the report is to be repeated        -                 next               -          -                 -
//
// Redis is to be told while stored is less than due. charges.go says how charges end. The record is forgotten
// ([record.ended]) when it holds nothing, has no report under way and no charge unacknowledged, no request is ending,
// and Redis knows that or has only reports that have lapsed.

// record is what this instance's requests hold of one zone's key, under rules of one
// kind, and what Redis knows of it.
type record struct {
	zone           stores.ZoneCheck // counter, key and tag
	value, permits string           // names of keys
	id             uint64           // of the entry in Redis

	held, cost int64 // number of permits, and the cost that they hold

	// Whether rules of another kind decide the key's checks now. The permits count until they are released; the cost
	// does not, because no check reads its counts any more.
	replaced bool

	charges charges

	// told is the least cost that Redis holds for this instance since the last report. Redis charges that cost if the
	// instance sends no report for long. It is then prepaid: responses charge what exceeds it.
	told, prepaid int64

	last     sent   // the last report; its number is 0 if there was none
	underWay []sent // reports that are not answered
	due      int64  // the number of the first report that Redis must receive
	stored   int64  // the number of the last report that Redis has stored; 0: it has stored none
	kept     int64  // when that report left
	stale    int64  // when the last report with other contents was sent; 0: none was

	ending    int           // requests that end, whose own calls report the record
	renewing  chan struct{} // closed when the renewal under way has reported the record; nil: none is under way
	round     uint64        // the last round of renewals that included the record
	at        int64         // when it was last moved to the end of ages
	age, late *list.Element // of the permits' lists; nil: it is in none
}

// sent is a report that has left.
type sent struct {
	number  int64
	left    int64 // when it left
	charges int64 // the total that it reports
	cost    int64 // the held cost that it reports
}

// changed notes a change that Redis learns only from a report: the report next, or a later one.
func (rec *record) changed(next int64) {
	rec.due, rec.stale = next, rec.last.left
}

// repeat makes the report next due, although nothing has changed.
func (rec *record) repeat(next int64) { rec.due = next }

// isKnown says whether Redis knows what is held.
func (rec *record) isKnown() bool { return rec.stored >= rec.due }

// leaves notes that a report leaves. It returns false if too many are under way: a report has room for the number of
// one other.
func (rec *record) leaves(number, now int64) bool {
	if len(rec.underWay) == callsInFlight {
		return false
	}
	rec.last = sent{number, now, rec.charges.total, rec.heldCost()}
	rec.underWay = append(rec.underWay, rec.last)
	return true
}

// arrived notes that a report is no longer under way, and whether it may have run.
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

// isMissing notes that Redis has no entry of this instance any more, and returns whether Redis has lost the entry: it
// would lapse later.
func (rec *record) isMissing(now int64) (lost bool) {
	if now-rec.kept < 2*unsure.Microseconds() {
		return true
	}
	rec.prepaid, rec.told = rec.prepaid+rec.told, 0
	return false
}

// unpaid returns the part of a charge that is not prepaid, and subtracts the rest from prepaid.
func (rec *record) unpaid(charge int64) int64 {
	paid := min(charge, rec.prepaid)
	rec.prepaid -= paid
	return charge - paid
}

// denied returns, when Redis has denied a check, whether another report has to renew what is held: Redis does not store
// the report of such a check.
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
	ages list.List // all records, those that were reported longest ago first
	late list.List // the records of which Redis is to be told soon
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

// overtaken is the number of a report that leaves while two others are under way. That happens when calls with one key
// go through the batchers of two nodes: a Cluster's slots have just become known, or a slot is being moved. Redis
// ignores such a report, and its check fails and is repeated.
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

// reported returns the greatest total of charges in the reports under way.
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
	op, at  int // the index of the operation, and the offset of the report in it

	permit *stores.Permit // of a check, to be set if it is granted; nil: the report is not part of a check
	cost   int64          // that the permit holds
	reply  int            // index of the zone in the replies

	rec     *record
	sent    sent
	granted bool
}
