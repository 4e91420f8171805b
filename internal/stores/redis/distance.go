package redis

import (
	"sync/atomic"
	"time"
)

// distance measures how far a node is: the least time that calls took lately. The mean would
// show how busy it is, too.
type distance struct {
	is   atomic.Int64 // nanoseconds; 0: not known yet
	next atomic.Int64 // the least since the last turn; 0: none was answered
	fly  atomic.Int64 // how many calls may be in flight; 0: not known yet: the first call may have waited for its connection
}

const (
	// farAway is from where on a node is called beside requests: what that costs is little
	// compared to the way, and the reply of a call that is late is read.
	farAway = time.Millisecond

	// callEvery is how often a call leaves for a node that is far, if requests wait for one: so many
	// calls are in flight that they do not wait for a whole round trip, or longer, in addition
	// to their own.
	callEvery = 1500 * time.Microsecond

	callsInFlight = 2  // at a node that is near
	mostInFlight  = 16 // at any
)

// add adds the time that a call took. The way may be as short at any time, and longer only if no
// call shows that it is not.
func (d *distance) add(took time.Duration) {
	if least := d.next.Load(); least != 0 && int64(took) >= least {
		return
	}
	d.next.Store(int64(took))
	if is := d.is.Load(); is == 0 || int64(took) < is {
		d.is.Store(int64(took))
	}
}

// turn ends a second of measuring.
func (d *distance) turn() {
	if least := d.next.Swap(0); least != 0 {
		d.is.Store(least)
		d.fly.Store(min(least/int64(callEvery), mostInFlight))
	}
}

// far says whether a node is far, or it is not known whether it is.
func (d *distance) far() bool {
	is := d.is.Load()
	return is == 0 || is >= int64(farAway)
}

// inFlight returns how many calls may be in flight, of which each needs a connection.
func (d *distance) inFlight(connections int) int {
	return max(callsInFlight, min(int(d.fly.Load()), connections))
}
