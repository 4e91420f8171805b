package redis

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Requests that arrive during in-flight calls are batched into the next EVALSHA:
// a call for many takes this process and Redis little more than a call for one. A
// request sends its own call at once if fewer than callsInFlight are in flight; the bound is greater for a far node.
// All others join the queue. When a batch is answered, one of the requests in the queue sends the next batch for all
// of them. No lock is held during I/O. A request starts a goroutine only for a node that is far or in trouble: the
// goroutine waits for the reply, so that the request need not.
//
// So when Redis stalls, the outcome of a bounded number of batches is unknown, of rulesPerCall rules each: of
// callsInFlight for a near node, of mostInFlight for another.
const (
	rulesPerCall    = 64  // bounds how long a call blocks Redis
	clusterBatchers = 256 // of each node
)

// batcher is a queue of calls, and those that are in flight for it.
type batcher struct {
	mu     sync.Mutex
	calls  [mostInFlight]*call // those that send, each for all in its batch
	flying int                 // how many these are
	queue  []*call
	oneTag bool // only calls with the same tag can be batched

	// One timer for all calls that wait: most are answered long before their
	// deadline, and timers of their own would be set in vain.
	timer  *time.Timer
	fires  time.Time // zero: it is not set
	looked bool      // whether it has fired late, and replies had time to be read since
}

// newBatchers returns the batchers of a node: calls for different nodes never wait in one queue. In a Cluster, a batch
// has only calls of one tag, whose keys lie in one slot.
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

// sender sends the batches of a batcher.
type sender interface {
	// sendBatch sends the batch of a call, until end, and sets the fates of all calls in it.
	sendBatch(q *call, end time.Time)

	// sendsApart says whether a goroutine sends a call in the place of its caller, who then need not wait for the reply:
	// a node is far or in trouble. end is until when the goroutine tries.
	sendsApart(q *call) (end time.Time, apart bool)

	// abandon is told of a call that is answered after its caller has left.
	abandon(q *call)
}

// do makes a call in a batch with the calls that wait, and returns why it failed. The caller sends the batch if the
// batcher chooses its call to (state sending); otherwise it waits.
func (l *batcher) do(q *call, most int, by sender) error {
	sends, idle := l.enter(q, most)
	if !sends {
		if <-q.ready; q.state != sending {
			return q.err
		}
	}
	if !idle {
		// Goroutines that are ready to run may have calls to add. On a machine
		// with idle processors there are none, and this costs next to nothing.
		runtime.Gosched()
		l.join(q)
	}
	if end, apart := by.sendsApart(q); apart {
		l.apart(q)
		go l.send(q, end, by)
		<-q.ready
		return q.err
	}
	l.send(q, q.end, by)
	return q.fate
}

// send sends the batch of a call, until end. Then it chooses a call that waits to send the next batch.
func (l *batcher) send(q *call, end time.Time, by sender) {
	by.sendBatch(q, end)
	l.end(q, by.abandon)
	for i, o := range q.batch {
		if q.batch[i] = nil; o != q {
			o.ended()
		}
	}
	q.ended() // it may be used again then
}

// ended wakes the caller of a call whose outcome is known. If the caller has left, the outcome goes to the function
// that it left for that (late.go).
func (q *call) ended() {
	switch q.state {
	case answered:
		q.tell()
	case expired:
		if l, ok := errors.AsType[*late](q.err); ok {
			l.end(fateOf(q))
		}
	}
}

// reusable reports whether a call may go back to the pool. An expired one may still be in a batch.
func (q *call) reusable() bool { return q.state != expired }

// enter adds a call. sends: fewer than most are in flight, and the caller sends it at once. idle: none was in flight.
func (l *batcher) enter(q *call, most int) (sends, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flying < most {
		idle = l.flying == 0
		l.flying++
		l.calls[slices.Index(l.calls[:], nil)], q.state, q.batch = q, sending, append(q.batch[:0], q)
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
	now := time.Now()
	if l.looked = !l.looked && now.Sub(l.fires) > punctual; l.looked { // this process stood still: see lateRead
		l.fires = now.Add(lateRead)
		l.timer.Reset(lateRead)
		return
	}
	l.fires = time.Time{}
	l.queue = slices.DeleteFunc(l.queue, func(q *call) bool {
		if now.Before(q.end) {
			l.wake(q.end)
			return false
		}
		q.expire(answered, errUnsent, now)
		return true
	})
	for i, sends := range l.calls {
		if sends != nil {
			l.expireBatch(i, sends, now)
		}
	}
}

// expireBatch ends the wait of those calls of the i-th batch whose deadlines have passed. After the deadline of the
// sending call, Redis does not run the batch: the wait of all its calls ends, and the next batch leaves.
func (l *batcher) expireBatch(i int, sends *call, now time.Time) {
	ends := sends.state == batched && !now.Before(sends.end)
	unsent := ends && sends.head.revoke()
	for _, q := range sends.batch {
		switch {
		case q.state != batched:
		case !ends && now.Before(q.end):
			l.wake(q.end)
		case unsent && q == sends:
			q.expire(expired, errUnconnected, now)
		case unsent:
			q.expire(expired, errUnsent, now)
		default:
			q.expire(expired, &late{sends: q == sends}, now)
		}
	}
	if ends {
		l.replace(i)
	}
}

// expire ends a call's wait.
func (q *call) expire(s callState, err error, now time.Time) {
	q.state, q.err = s, whetherLate(err, q.end, now)
	q.tell()
}

// tell tells the caller of a call that waits of its state.
func (q *call) tell() { q.ready <- struct{}{} }

// apart notes that a goroutine sends a call: its caller waits for it as for a call in a batch of another.
func (l *batcher) apart(q *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.state = batched
	l.wake(q.end)
}

// end ends the batch of a call. All its calls are answered, except the expired ones, for which it calls abandon. If
// calls wait, the next batch leaves.
func (l *batcher) end(q *call, abandon func(*call)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range q.batch {
		switch o.state {
		case batched:
			o.state, o.err = answered, o.fate
		case expired:
			abandon(o)
		}
	}
	if i := slices.Index(l.calls[:], q); i >= 0 { // otherwise another has its place
		l.replace(i)
	}
}

// replace gives the i-th place to a batch of the calls that wait, if any do. The last call of the batch sends it,
// because its caller can wait longest for the answer.
func (l *batcher) replace(i int) {
	l.calls[i] = nil
	if len(l.queue) == 0 {
		l.flying--
		return
	}
	first := l.queue[0]
	batch := l.dequeue(first.batch[:0])
	next := batch[len(batch)-1]
	first.batch, next.batch = next.batch, batch
	l.calls[i], next.state = next, sending
	next.tell()
}

// join adds to the batch of a call what has joined the queue since the call was chosen to send.
func (l *batcher) join(q *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.batch = l.dequeue(q.batch)
}

// dequeue moves calls from the queue to a batch as far as they fit. Calls of a batch run the
// same script.
func (l *batcher) dequeue(batch []*call) []*call {
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
