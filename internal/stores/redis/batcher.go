package redis

import (
	"slices"
	"sync"
	"time"
)

// Requests that arrive during in-flight calls are batched into the next EVALSHA:
// a call for many takes this process and Redis little more than a call for one. A
// request that finds fewer than callsInFlight calls in flight sends its own at
// once. All others join the queue. When a call is answered, one of those in the
// queue sends the next for all of them. No request starts a goroutine, and no lock
// is held during I/O.
//
// So when Redis stalls, at most callsInFlight calls, of rulesPerCall rules each,
// have been sent whose outcome is unknown.
const (
	callsInFlight   = 2
	rulesPerCall    = 64  // bounds how long a call blocks Redis
	clusterBatchers = 256 // of each node
)

// batcher is a queue of calls, and those that are in flight for it.
type batcher struct {
	mu     sync.Mutex
	calls  [callsInFlight]*call // those that send, each for all in its batch
	queue  []*call
	oneTag bool // only calls with the same tag can be batched

	// One timer for all calls that wait: most are answered long before their
	// deadline, and timers of their own would be set in vain.
	timer *time.Timer
	fires time.Time // zero: it is not set
}

// newBatchers returns the batchers of a node, whose queues no call for another node
// waits in. In a Cluster, calls can be batched
// if their keys lie in one slot, as those of one tag do.
func newBatchers(cluster bool) []batcher {
	if !cluster {
		return make([]batcher, 1)
	}
	batchers := make([]batcher, clusterBatchers)
	for i := range batchers {
		batchers[i].oneTag = true
	}
	return batchers
}

// enter adds a call. It says whether the caller sends it at once, and whether no
// other is in flight.
func (l *batcher) enter(q *call) (sends, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.calls[:], nil); i >= 0 {
		idle = l.calls == [callsInFlight]*call{}
		l.calls[i], q.state, q.batch = q, sending, append(q.batch[:0], q)
		return true, idle
	}
	q.state = queued
	l.queue = append(l.queue, q)
	l.wake(q.end)
	return false, false
}

// wake sets the timer to the earliest deadline of the calls that wait.
func (l *batcher) wake(end time.Time) {
	switch {
	case !l.fires.IsZero() && !end.Before(l.fires):
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(end), l.expire)
	default:
		l.timer.Reset(time.Until(end))
	}
	l.fires = end
}

// expire ends the wait of calls whose deadline has passed, except those that are
// being answered, or chosen to send.
func (l *batcher) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fires = time.Time{}
	now := time.Now()
	l.queue = slices.DeleteFunc(l.queue, func(q *call) bool {
		return l.expireOne(q, now, answered, errUnsent)
	})
	for _, sends := range l.calls {
		if sends == nil {
			continue
		}
		for _, q := range sends.batch {
			if q.state == batched {
				l.expireOne(q, now, expired, errUnanswered)
			}
		}
	}
}

// expireOne ends a call's wait if its deadline has passed, and sets the timer
// again if not.
func (l *batcher) expireOne(q *call, now time.Time, s callState, err error) bool {
	if now.Before(q.end) {
		l.wake(q.end)
		return false
	}
	q.state, q.err = s, err
	q.ready <- struct{}{}
	return true
}

// end ends a batch: all calls in it are answered, except those that expired, for which
// it calls abandon. It returns the call that sends the next batch, if any wait: the last of those in
// the batch, because it can wait longest for the answer.
func (l *batcher) end(q *call, abandon func(*call)) (next *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, o := range q.batch {
		if o == q || o.state == expired {
			if o.state == expired {
				abandon(o)
			}
			q.batch[i] = nil
			continue
		}
		o.state, o.err = answered, o.fate
	}
	if len(l.queue) > 0 {
		first := l.queue[0]
		batch := l.take(first.batch[:0])
		next = batch[len(batch)-1]
		first.batch, next.batch = next.batch, batch
		next.state = sending
	}
	l.calls[slices.Index(l.calls[:], q)] = next
	return next
}

// join adds the calls to a batch that have arrived since its sender was chosen.
func (l *batcher) join(q *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.batch = l.take(q.batch)
}

// take moves calls from the queue to a batch as far as they fit. Calls of a batch run the
// same script.
func (l *batcher) take(batch []*call) []*call {
	all, rest, rules := l.queue, l.queue[:0], 0
	for _, q := range batch {
		rules += q.rules
	}
	for _, q := range all {
		if len(batch) > 0 && (rules+q.rules > rulesPerCall || q.codes != batch[0].codes || l.oneTag && q.tag != batch[0].tag) {
			rest = append(rest, q)
			continue
		}
		q.state = batched
		batch, rules = append(batch, q), rules+q.rules
	}
	clear(all[len(rest):])
	l.queue = rest
	return batch
}
