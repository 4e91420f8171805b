package redis

import (
	"container/list"
	"slices"

	"github.com/dianalimiter/diana/stores"
)

// record is what this instance's requests hold of one zone's key, under rules of one
// kind. It ends when they hold nothing and Redis knows it.
type record struct {
	zone           stores.ZoneCheck // counter, key and tag
	value, permits string           // names of keys
	id             uint64           // of the entry in Redis

	held, cost int64 // number of permits, and the cost that they hold

	// Whether checks of the key are decided under rules of another kind now. Its permits count
	// until they are given back; its cost is held of counts that nobody asks any more.
	replaced bool

	// The cost that responses were to charge, how much of it has left, how much a call has
	// reported that may have run, and how much Redis has acknowledged. since is when the first
	// was not.
	charged, sent, ran, acked int64
	since                     int64

	// version counts changes that Redis does not know by itself, and stored is the
	// last that it has acknowledged.
	version, stored uint64
	changedAt       int64 // when the last change was
	told            bool  // Redis has stored a report
	kept            int64 // when the last one left that it has stored

	underWay []int64 // numbers of reports
	report   int64   // number of the last report
	call     uint64  // that carries it
	left     int64   // when it left; 0: none ever did

	ending    int           // requests whose calls report it
	renewing  chan struct{} // closed when a renewal has reported it; nil: none does
	round     uint64        // of renewals, the last that included it
	at        int64         // when it was put at the end of ages
	age, late *list.Element // of the permits' lists; nil: it is in none
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

// arrived notes that a report is not under way any more.
func (rec *record) arrived(number int64) {
	rec.underWay = slices.DeleteFunc(rec.underWay, func(n int64) bool { return n == number })
}

// other returns the number of the report that is under way beside the last one, or 0.
func (rec *record) other() int64 {
	for _, n := range rec.underWay {
		if n != rec.report {
			return n
		}
	}
	return 0
}

// mayHaveRun returns how much of the cost that responses were to charge may have been charged.
func (rec *record) mayHaveRun() int64 {
	ran := rec.ran
	if len(rec.underWay) > 0 {
		ran = rec.sent
	}
	return max(ran, rec.acked)
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
	number  int64
	left    int64 // when it left
	version uint64
	charged int64
	granted bool
}
