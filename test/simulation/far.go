package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// way is how far Redis is from the instances of a run, and how long these wait for its replies.
type way struct {
	round   time.Duration // there and back, in addition to what each packet takes
	rare    bool          // one reply in ten takes three times as long
	timeout time.Duration // of a store
}

// near is a Redis in the same place, and the timeout that is the default.
var near = way{timeout: 25 * time.Millisecond}

// drawWay draws how far Redis is.
func drawWay(r *rand.Rand) way {
	return way{
		round:   time.Duration([]int{0, 2, 8, 12, 20}[r.IntN(5)]) * time.Millisecond,
		rare:    r.IntN(2) == 0,
		timeout: time.Duration([]int{10, 25, 100}[r.IntN(3)]) * time.Millisecond,
	}
}

func (v way) String() string {
	text := fmt.Sprintf("%v away", v.round)
	if v.rare && v.round > 0 {
		text += fmt.Sprintf(" and sometimes %v", 3*v.round)
	}
	return fmt.Sprintf("%s of %v allowed", text, v.timeout)
}

// jitter is the longest that two packets take beside the way.
const jitter = time.Millisecond

// longest is the longest that a reply takes if nothing else happens.
func (v way) longest() time.Duration {
	if v.rare {
		return 3*v.round + jitter
	}
	return v.round + jitter
}

// within says whether so many round trips, one after another, end before the timeout.
func (v way) within(trips int) bool { return time.Duration(trips)*v.longest() < v.timeout }

// farAcross is a Redis that is near enough but for zones in two stores.
const farAcross = "far for two stores"

// isFault says whether instances may be without Redis for another reason than that it is far.
func (s *span) isFault() bool { return s.away && !s.isFar() }

func (s *span) isFar() bool { return s.what == "far" || s.what == farAcross }

// How many round trips, one after another, a request may wait for.
const (
	queueTrips  = 2 // for another call, and for its own
	acrossTrips = 4 // the same for a question, and then for a charge
	openTrips   = 4 // until a connection is open, for a script that is not loaded, and for its own
	slotTrips   = 3 // until a connection is open over which a Cluster is asked for its slots, and for these
)

// connects notes that an instance begins with stores that have no connection yet, until the function that it
// returns is called.
func (o *oracle) connects(instance int) (done func()) {
	trips := openTrips
	if o.w.plan.setup.topology == clustered {
		trips += slotTrips
	}
	if o.w.plan.setup.way.within(trips) {
		return func() {}
	}
	s := &span{what: "connects", away: true, answers: true, from: o.w.now(), instance: instance, site: -1, open: true}
	o.add(s)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		s.open, s.to = false, o.w.now()
	}
}

// far makes Redis far. If its replies do not always come in time, instances may be without it, but hear
// later what became of each call; it is near again when there are no more clients.
func (w *world) far() {
	v := w.plan.setup.way
	w.network.far(v)
	if v.within(acrossTrips) {
		return
	}
	s := &span{what: farAcross, instance: -1, site: -1, open: true}
	if !v.within(queueTrips) {
		s = &span{what: "far", away: true, answers: true, instance: -1, site: -1, open: true}
	}
	w.oracle.add(s)
	w.background.Go(func() {
		time.Sleep(w.plan.load - w.now())
		w.network.far(near)
		w.oracle.mu.Lock()
		defer w.oracle.mu.Unlock()
		s.open, s.to = false, w.now()
	})
}

// far changes how far the servers are. Those that are reached without delay still are.
func (n *network) far(v way) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.way = v
}

// trips is how many round trips a request may have to wait for: with permits, only two calls at a time are in
// flight, and those of a key that is leased come in bursts; with zones in two stores, the first is a question.
func (one *site) trips() int {
	switch one.Kind {
	case across:
		return acrossTrips
	case inFlight, counted, tally, held, leased:
		return queueTrips
	}
	return 1
}

// lateOf is of how many calls one may be late, of those in which nothing happens and a reply takes less
// than the timeout.
const lateOf = 100

// inTime notes a request that Redis has time to decide. longest is for how long it may wait. o.mu is held.
func (o *oracle) inTime(q *request, longest time.Duration) {
	v := o.w.plan.setup.way
	if longest != v.timeout || !v.within(o.w.plan.setup.sites[q.site].trips()) || len(o.touches(q.start-recovery, q.end, func(s *span) bool { return !s.isFar() })) > 0 {
		return
	}
	o.timely = append(o.timely, q)
}

// lates checks that Redis has decided nearly all requests, if its replies come in time. o.mu is held.
func (o *oracle) lates() {
	at, late := make(map[string]int), []*request(nil)
	queues, of := !o.w.plan.setup.way.within(queueTrips), make(map[string][]*request) // by process
	for _, q := range o.requests {
		of[q.process] = append(of[q.process], q)
	}
	for _, q := range o.timely {
		if queues && o.mayQueue(q, of[q.process]) {
			continue
		}
		o.checked["in time"]++
		if q.decided-q.start >= o.w.plan.setup.way.timeout {
			at[o.w.plan.setup.sites[q.site].Name]++
			late = append(late, q)
		}
	}
	if n := len(late); n > 1+o.checked["in time"]/lateOf {
		o.violateLocked("Redis decides, if it is near enough", fmt.Sprintf("%d of %d requests waited for the timeout: %s", n, o.checked["in time"], table(at)), late[0])
	}
}

// callsInFlight is how many calls of a store are in flight at a time in any case.
const callsInFlight = 2

// mayQueue says whether a request may have had to wait for the reply to another's call, before its own was
// sent. list is the requests of its process. o.mu is held.
func (o *oracle) mayQueue(q *request, list []*request) bool {
	under := 0
	for _, p := range list {
		if p != q && p.start <= q.start && o.callsUntil(p) >= q.start {
			under++
		}
	}
	return under >= callsInFlight
}

// callsUntil returns until when calls for a request may be in flight. What it was charged may be reported
// after its response, and a zone in a second store is told of a decision.
func (o *oracle) callsUntil(p *request) time.Duration {
	until := max(p.decided, p.start+o.w.plan.setup.way.longest())
	if o.w.plan.setup.sites[p.site].trips() > 1 || o.w.plan.setup.sites[p.site].Kind == settled {
		until = p.end + queueTrips*o.w.plan.setup.way.longest()
	}
	return until
}
