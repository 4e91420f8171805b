package redis

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Requests that come while others ask Redis share the next call of the script:
// a call for many asks takes little more than one for one of them, of this
// process and of Redis. A request that finds fewer than callsInFlight calls under
// way asks at once, so that nobody waits while there is little to do. Any other
// joins the queue; when a call is answered, one of those that wait asks for all
// of them. No request starts a goroutine, and no lock is held while Redis is asked.
//
// Where others are asking already, those that are ready to run do so before a
// call leaves, because they may want to come along: on a busy machine there are
// some, and they would have the processor sooner or later; on any other there
// are none, and nothing is waited for.
//
// So when Redis stalls, no more than callsInFlight calls, of rulesPerCall rules
// each, have been sent of which nobody knows whether they will be carried out.
const (
	callsInFlight   = 2
	rulesPerCall    = 128 // or a call would hold up Redis for too long
	clusterBatchers = 1024
)

var (
	// errUnsent says that nothing was sent, and nothing charged.
	errUnsent = notInTime{errors.New("not asked in time: Redis still had to answer others")}

	// errLate says that Redis refused a call that came too late to be answered.
	errLate = notInTime{errors.New("taken up by Redis when it was too late, and not charged")}

	// errUnanswered says that the answer came too late for this caller.
	errUnanswered = notInTime{errors.New("no answer from Redis in time")}
)

// notInTime is an error that is a timeout.
type notInTime struct{ error }

// Timeout says that it is one.
func (notInTime) Timeout() bool { return true }

// reported is the error of a call that several asked for. It is counted once, by
// the one who made the call.
type reported struct{ error }

// Unwrap returns the error itself.
func (r reported) Unwrap() error { return r.error }

// state is how far a question has come.
type state uint8

const (
	queued   state = iota
	taken          // another one asks for it
	asking         // it asks, for all in its batch
	answered       // the answer or the error is there
	left           // its caller was let go before that
)

// batcher is a queue of questions, and the calls that are under way for it.
type batcher struct {
	mu     sync.Mutex
	calls  [callsInFlight]*call // who asks, for all in its batch
	queue  []*call
	oneTag bool // only those with the same tag can share a call

	// One clock for all who wait: most are answered long before their time is up,
	// and would have set clocks of their own for nothing.
	timer *time.Timer
	fires time.Time // zero: it is not set
}

// newBatchers returns the lanes that lead to a Redis. In a Cluster, questions can
// share a call if their keys lie in one slot, as those of one tag do.
func newBatchers(cluster bool) []batcher {
	if !cluster {
		return make([]batcher, 1)
	}
	lanes := make([]batcher, clusterBatchers)
	for i := range lanes {
		lanes[i].oneTag = true
	}
	return lanes
}

// ask answers a question, or says by its error what is known of it.
func (c *conn) ask(q *call) error {
	l := &c.batchers[q.tag.Lo%uint64(len(c.batchers))]
	asks, alone := l.enter(q)
	if !asks {
		if <-q.ready; q.state != asking {
			return q.err
		}
	}
	if !alone {
		runtime.Gosched()
		l.join(q)
	}
	switch {
	case c.stopped != nil && c.stopped():
		q.err = errOpen
	case !time.Now().Before(q.end):
		q.err = errUnsent
	default:
		q.err = c.askForAll(q)
	}
	if next := l.end(q); next != nil {
		next.ready <- struct{}{}
	}
	for _, o := range q.batch {
		if o != nil {
			o.ready <- struct{}{}
		}
	}
	return q.err
}

// enter says whether a question is to be asked at once, and whether no other is
// being asked.
func (l *batcher) enter(q *call) (asks, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.calls[:], nil); i >= 0 {
		alone = l.calls == [callsInFlight]*call{}
		l.calls[i], q.state, q.batch = q, asking, append(q.batch[:0], q)
		return true, alone
	}
	q.state = queued
	l.queue = append(l.queue, q)
	l.wake(q.end)
	return false, false
}

// wake sets the clock to when the first of those that wait has to leave.
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

// expire lets those go whose time is up, unless they are answered, or are to be
// asked, at this moment.
func (l *batcher) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fires = time.Time{}
	now := time.Now()
	l.queue = slices.DeleteFunc(l.queue, func(q *call) bool {
		return l.leaves(q, now, answered, errUnsent)
	})
	for _, asks := range l.calls {
		if asks == nil {
			continue
		}
		for _, q := range asks.batch {
			if q.state == taken {
				l.leaves(q, now, left, errUnanswered)
			}
		}
	}
}

// leaves lets a question go if its time is up, and looks again later if not.
func (l *batcher) leaves(q *call, now time.Time, s state, err error) bool {
	if now.Before(q.end) {
		l.wake(q.end)
		return false
	}
	q.state, q.err = s, err
	q.ready <- struct{}{}
	return true
}

// end ends a call: those that it asked for are answered, but for those that have
// left. It returns who makes the next one, if any wait: the youngest of those that
// have waited longest and can share a call, because it can wait longest for the
// answer.
func (l *batcher) end(q *call) (next *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, o := range q.batch {
		if o == q || o.state == left {
			q.batch[i] = nil
			continue
		}
		o.state, o.err = answered, q.err
	}
	if len(l.queue) > 0 {
		first := l.queue[0]
		batch := l.take(first.batch[:0])
		next = batch[len(batch)-1]
		first.batch, next.batch = next.batch, batch
		next.state = asking
	}
	l.calls[slices.Index(l.calls[:], q)] = next
	return next
}

// join takes those along that have come since it was chosen who asks.
func (l *batcher) join(q *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.batch = l.take(q.batch)
}

// take moves from the queue to a batch what can share a call with it.
func (l *batcher) take(batch []*call) []*call {
	all, rest, rules := l.queue, l.queue[:0], 0
	for _, q := range batch {
		rules += q.rules
	}
	for _, q := range all {
		if len(batch) > 0 && (rules+q.rules > rulesPerCall || l.oneTag && q.tag != batch[0].tag) {
			rest = append(rest, q)
			continue
		}
		q.state = taken
		batch, rules = append(batch, q), rules+q.rules
	}
	clear(all[len(rest):])
	l.queue = rest
	return batch
}

// askForAll makes one call for a batch.
func (c *conn) askForAll(q *call) error {
	ctx, cancel := context.WithDeadline(context.Background(), q.end)
	defer cancel()
	q.args = append(q.args[:0], "evalsha", c.name, nil)
	keys := 0
	for _, o := range q.batch {
		for i := range o.names {
			q.args = append(q.args, &o.names[i])
		}
		keys += len(o.names)
	}
	q.args[2] = keys
	q.args = append(q.args, &q.head)
	var before *argument
	for _, o := range q.batch {
		for i := range o.asks {
			q.args, before = appendAsk(q.args, before, &o.asks[i])
		}
	}
	r, now, err := c.eval(ctx, q.args, &q.head)
	if err == nil {
		for _, o := range q.batch {
			o.now = now
			o.cut(&r)
		}
		if r.err != nil || len(r.b) > 0 {
			err = errReply
		}
	}
	if err != nil && c.report != nil {
		c.report(err)
		return reported{err}
	}
	return err
}
