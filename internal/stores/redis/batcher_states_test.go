package redis

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// waitingCall is a call in a batcher, and what the table in batcher.go says of it.
type waitingCall struct {
	q     *call
	state callState
	told  bool // by the last event
	err   error
}

// sentBatch is calls that are sent together.
type sentBatch struct {
	sends                *waitingCall
	calls                []*waitingCall
	left, apart, written bool
	replaced             bool // another batch has its place
}

// batcherWalk leads the calls of a batcher through events.
type batcherWalk struct {
	l         *batcher
	queue     []*waitingCall
	batches   []*sentBatch // the oldest first
	done      []*waitingCall
	abandoned []*call
	wrong     string
}

// sendBatch implements sender.
func (*batcherWalk) sendBatch(*call, time.Time) {}

// sendsApart implements sender.
func (*batcherWalk) sendsApart(*call) (end time.Time, apart bool) { return end, false }

// abandon implements sender.
func (w *batcherWalk) abandon(q *call) { w.abandoned = append(w.abandoned, q) }

// enter has a call arrive whose caller waits for so long.
func (w *batcherWalk) enter(wait time.Duration) {
	flying, calls := 0, len(w.queue)
	for _, b := range w.batches {
		if calls += len(b.calls); !b.replaced {
			flying++
		}
	}
	if calls == 3 {
		return
	}
	c := &waitingCall{q: newCall(time.Now().Add(wait), stores.Key{})}
	sends, idle := w.l.enter(c.q, callsInFlight)
	if sends != (flying < callsInFlight) || sends && idle != (flying == 0) {
		w.wrong = fmt.Sprintf("it sends %v, and is idle %v", sends, idle)
	}
	if c.state = queued; flying < callsInFlight {
		c.state = sending
		w.batches = append(w.batches, &sentBatch{sends: c, calls: []*waitingCall{c}})
		return
	}
	w.queue = append(w.queue, c)
}

// leave has the newest batch leave, with what waits.
func (w *batcherWalk) leave() {
	if len(w.batches) == 0 || w.batches[len(w.batches)-1].left {
		return
	}
	b := w.batches[len(w.batches)-1]
	b.left = true
	w.l.join(b.sends.q)
	b.sends.q.head.begin(1, noEnd)
	for _, c := range w.queue {
		c.state = batched
	}
	b.calls, w.queue = append(b.calls, w.queue...), nil
}

// sendApart has the newest batch sent beside its caller.
func (w *batcherWalk) sendApart() {
	if len(w.batches) == 0 {
		return
	}
	if b := w.batches[len(w.batches)-1]; b.left && !b.apart {
		b.apart, b.sends.state = true, batched
		w.l.apart(b.sends.q)
		if !time.Now().Before(b.sends.q.end) { // long ago perhaps, as if this process had stood still
			time.Sleep(lateRead)
			w.expire()
		}
	}
}

// write has the newest batch written to its connection.
func (w *batcherWalk) write() {
	if len(w.batches) == 0 {
		return
	}
	if b := w.batches[len(w.batches)-1]; b.left && !b.replaced {
		b.written = true
		_, _ = b.sends.q.head.MarshalBinary()
	}
}

// next has those that wait take a place.
func (w *batcherWalk) next() {
	if len(w.queue) == 0 {
		return
	}
	last := w.queue[len(w.queue)-1]
	for _, c := range w.queue {
		c.state = batched
	}
	last.state, last.told = sending, true
	w.batches = append(w.batches, &sentBatch{sends: last, calls: w.queue})
	w.queue = nil
}

// end has a batch end.
func (w *batcherWalk) end(i int) {
	if i < 0 || i >= len(w.batches) || !w.batches[i].left {
		return
	}
	b, abandoned := w.batches[i], []*call(nil)
	w.batches = slices.Delete(w.batches, i, i+1)
	for _, c := range b.calls {
		switch c.state {
		case batched:
			c.state, c.told = answered, true
		case expired:
			abandoned = append(abandoned, c.q)
		}
	}
	if !b.replaced {
		w.next()
	}
	w.done = append(w.done, b.calls...)
	w.abandoned = nil
	w.l.send(b.sends.q, time.Time{}, w)
	if len(w.abandoned) != len(abandoned) || slices.ContainsFunc(abandoned, func(q *call) bool { return !slices.Contains(w.abandoned, q) }) {
		w.wrong = fmt.Sprintf("%d calls are abandoned, want %d", len(w.abandoned), len(abandoned))
	}
}

// pass has time pass, in which short waits end.
func (w *batcherWalk) pass() {
	for range 10 {
		time.Sleep(lateRead)
		w.expire()
	}
}

// expire ends waits whose deadline has passed.
func (w *batcherWalk) expire() {
	synctest.Wait()
	ends := func(c *waitingCall) bool { return !time.Now().Before(c.q.end) }
	w.queue = slices.DeleteFunc(w.queue, func(c *waitingCall) bool {
		if !ends(c) {
			return false
		}
		c.state, c.told, c.err = answered, true, errUnsent
		w.done = append(w.done, c)
		return true
	})
	for _, b := range slices.Clone(w.batches) {
		all := b.apart && b.sends.state == batched && ends(b.sends)
		for _, c := range b.calls {
			if b.replaced || c.state != batched || !all && !ends(c) {
				continue
			}
			switch c.state, c.told = expired, true; {
			case all && !b.written && c == b.sends:
				c.err = errUnconnected
			case all && !b.written:
				c.err = errUnsent
			default:
				c.err = errUnanswered
			}
		}
		if all && !b.replaced {
			b.replaced = true
			w.next()
		}
	}
}

// state returns the states of all calls, in their order.
func (w *batcherWalk) state() (s string) {
	short := func(c *waitingCall) bool { return time.Until(c.q.end) < time.Minute }
	for _, c := range w.queue {
		s += fmt.Sprint(short(c), " ")
	}
	for _, b := range w.batches {
		s += fmt.Sprint("| ", b.left, b.apart, b.written, b.replaced, ": ")
		for _, c := range b.calls {
			s += fmt.Sprint(c.state, short(c), c == b.sends, " ")
		}
	}
	return s
}

// agrees fails the test unless all calls are in the states of the model.
func (w *batcherWalk) agrees(t *testing.T, did string) {
	t.Helper()
	w.l.mu.Lock() // its timer may fire next
	defer w.l.mu.Unlock()
	all := append(slices.Clone(w.queue), w.done...)
	for _, b := range w.batches {
		all = append(all, b.calls...)
	}
	for _, c := range all {
		if told := len(c.q.ready) == 1; c.q.state != c.state || told != c.told || c.err != nil && !errors.Is(c.q.err, c.err) {
			t.Fatalf("after a batcher %s a call is in state %d, told %v, with %v; want %d, %v, %v", did, c.q.state, told, c.q.err, c.state, c.told, c.err)
		}
		if c.told {
			<-c.q.ready
		}
		c.told = false
	}
	if w.done = nil; w.wrong != "" {
		t.Fatalf("after a batcher %s: %s", did, w.wrong)
	}
}

// TestStatesOfACall has each event meet the calls of a batcher in all states that events lead to, and then random
// ones. The calls are then in the states that the table in batcher.go says, and their callers are told.
func TestStatesOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storekit.Walk(t, []storekit.Event[*batcherWalk]{
			{Name: "gets a call", Do: func(w *batcherWalk) { w.enter(time.Hour) }},
			{Name: "gets a call that waits for a moment", Do: func(w *batcherWalk) { w.enter(5 * time.Millisecond) }},
			{Name: "has a batch leave", Do: (*batcherWalk).leave},
			{Name: "has it sent apart", Do: (*batcherWalk).sendApart},
			{Name: "has it written", Do: (*batcherWalk).write},
			{Name: "has the oldest batch end", Do: func(w *batcherWalk) { w.end(0) }},
			{Name: "has the newest batch end", Do: func(w *batcherWalk) { w.end(len(w.batches) - 1) }},
			{Name: "waits", Do: (*batcherWalk).pass},
		}, func() *batcherWalk { return &batcherWalk{l: &newBatchers(false)[0]} }, (*batcherWalk).state, func(w *batcherWalk, did string) { w.agrees(t, did) })
	})
}
