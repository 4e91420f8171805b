package redis

import "time"

// Permits in Redis lapse unless they are reported again.
const (
	renewEvery = 10 * time.Second
	lapse      = 30 * time.Second // the script's LAPSE

	// unsure is for how long a report is sent again whose outcome is unknown. After
	// that its entry in Redis, which would tell, may have lapsed.
	unsure = lapse - time.Second
)

// charges are the cost that the responses of a key were to charge. Each report says the total, so that one
// that is lost is made good by the next, and one that arrives twice charges nothing. Cost passes through these
// states:
//
//	event                    waits        is under way           may be charged   is acknowledged
//	a response ends          more         -                      -                -
//	a report leaves          0            what waited            -                -
//	it is stored             -            0                      0                all that it says
//	it may have run          -            0                      what it says     -
//	it has not run           what it      0, unless another      -                -
//	                         says         says it
//	unsure has passed        0, refused   0, of unknown          0, of unknown    all
//	                                      outcome                outcome
//
// A late reply to a report that was given up changes nothing. What waits is total - ran, without what a report under
// way says; what may be charged is ran - acked.
type charges struct {
	total int64 // that responses were to charge
	ran   int64 // of that, what a report said that may have run
	acked int64 // of that, what Redis has acknowledged, or is not asked for any more
	since int64 // when the first was to be charged that is not acknowledged
}

// chargesFrom returns the charges of a new record: numbers of an earlier record of the key were not above total.
func chargesFrom(total int64) charges { return charges{total: total, ran: total, acked: total} }

// add adds what a response was to charge.
func (c *charges) add(charge, now int64) {
	if c.acknowledged() {
		c.since = now
	}
	c.total += charge
}

// mayHaveRun notes that a report of a total may have run.
func (c *charges) mayHaveRun(total int64) { c.ran = max(c.ran, total) }

// acknowledge notes that a report of a total is stored, which left at a time: what it did not say was to
// be charged since.
func (c *charges) acknowledge(total, left int64) {
	c.mayHaveRun(total)
	c.acked = max(c.acked, total)
	c.since = left
}

// acknowledged says whether nothing is to be reported.
func (c *charges) acknowledged() bool { return c.acked == c.total }

// giveUp ends charges that were not acknowledged for so long that the entry in Redis, which would tell whether they
// were made, may have lapsed. underWay is the greatest total of a report under way. It returns the
// cost that may be charged, and the cost that certainly is not.
func (c *charges) giveUp(underWay, now int64) (unknown, refused int64) {
	if c.acknowledged() || now-c.since <= unsure.Microseconds() {
		return 0, 0
	}
	c.mayHaveRun(underWay)
	unknown, refused = c.ran-c.acked, c.total-c.ran
	c.ran, c.acked = c.total, c.total
	return unknown, refused
}
