package limiter

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/stores"
)

// zoneWaiting is the greatest number of waiting requests per zone, in all its handlers, unless
// max_waiting is greater.
const zoneWaiting = 1000

// pollEvery is how often the oldest request of a key that waits for what other requests
// hold asks again: another instance may have released a permit.
const pollEvery = 75 * time.Millisecond

// waitQueue orders the waiting requests of a zone by key: one request of a key retries at
// a time, the oldest first. The zero value is ready for use.
type waitQueue struct {
	slots  atomic.Int64 // of requests that wait, or that a leaky_bucket may delay
	queued atomic.Int64 // requests in keys

	mu      sync.Mutex
	keys    map[stores.Key]*list.List // of *waiter, the oldest first; never empty
	passing map[stores.Key]struct{}   // see pass

	// One timer for all keys, so that their polls are batched into one call to Redis.
	// nil: no request waits for a poll.
	poll *time.Timer
}

// waiter is a waiting request.
type waiter struct {
	queue *waitQueue
	key   stores.Key
	at    *list.Element
	turn  chan struct{} // closed once it is the oldest of its key
	wake  chan struct{} // receives when the oldest is to ask again
	again chan struct{} // receives when what it waits for may have changed: rules, or a reset
	polls bool          // whether it waits for the next poll; under the queue's lock
	asked bool          // whether it has asked since its turn came
	slot  bool          // whether it has a slot of its own
}

// acquireSlot acquires a slot. It returns false if none is free.
func (w *waitQueue) acquireSlot(maxWaiting int64) bool {
	if w.slots.Add(1) > max(zoneWaiting, maxWaiting) {
		w.slots.Add(-1)
		return false
	}
	return true
}

// releaseSlot releases a slot.
func (w *waitQueue) releaseSlot() { w.slots.Add(-1) }

// pass lets one request of a key be decided without a slot while none is left, as it may
// not have to wait. Another of the same key could be delayed because of the first.
func (w *waitQueue) pass(k stores.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, busy := w.passing[k]; busy {
		return false
	}
	if w.passing == nil {
		w.passing = make(map[stores.Key]struct{})
	}
	w.passing[k] = struct{}{}
	return true
}

// passed ends what pass began.
func (w *waitQueue) passed(k stores.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.passing, k)
}

// join adds a request to the queue of a key. It returns false if too many requests of the
// zone wait, or with maxWaiting of the key. counted is whether the request has a slot already.
func (w *waitQueue) join(k stores.Key, maxWaiting int64, counted bool) (*waiter, bool) {
	if !counted && !w.acquireSlot(maxWaiting) {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.keys[k]
	if l == nil {
		l = list.New()
		if w.keys == nil {
			w.keys = make(map[stores.Key]*list.List)
		}
		w.keys[k] = l
	}
	if maxWaiting > 0 && int64(l.Len()) >= maxWaiting {
		if !counted {
			w.releaseSlot()
		}
		return nil, false
	}
	w.queued.Add(1)
	p := &waiter{queue: w, key: k, slot: !counted, turn: make(chan struct{}), wake: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	p.at = l.PushBack(p)
	if l.Len() == 1 {
		close(p.turn)
	}
	return p, true
}

// leave removes the request from its queue. The turn passes to the next of its key.
func (p *waiter) leave() {
	w := p.queue
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.slot {
		w.releaseSlot()
	}
	w.queued.Add(-1)
	l := w.keys[p.key]
	first := l.Front() == p.at
	l.Remove(p.at)
	if l.Len() == 0 {
		delete(w.keys, p.key)
	} else if first {
		close(oldest(l).turn)
	}
}

func oldest(l *list.List) *waiter {
	p, _ := l.Front().Value.(*waiter) // the list has no other type
	return p
}

// has reports whether requests of a key wait.
func (w *waitQueue) has(k stores.Key) bool {
	if w.queued.Load() == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys[k] != nil
}

// freed wakes the oldest waiting request of a key to ask again, because a request of the key
// has released what it held.
func (w *waitQueue) freed(k stores.Key) {
	if w.queued.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.keys[k]; l != nil {
		oldest(l).wakeUp()
	}
}

// changed wakes all waiting requests to ask again, each in its turn, because the rules have changed.
func (w *waitQueue) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.keys {
		askAgain(l)
	}
}

// wasReset is like changed for one key, which has been reset.
func (w *waitQueue) wasReset(k stores.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.keys[k]; l != nil {
		askAgain(l)
	}
}

func askAgain(l *list.List) {
	for e := l.Front(); e != nil; e = e.Next() {
		p, _ := e.Value.(*waiter)
		signal(p.again)
	}
}

func (p *waiter) wakeUp() { signal(p.wake) }

// signal sends to a channel of one place, unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// asks notes that the request is about to ask: what is released from now on wakes it.
func (p *waiter) asks() {
	p.asked = true
	select {
	case <-p.wake:
	default:
	}
}

// waitForPoll registers the request for the next poll, which wakes it.
func (p *waiter) waitForPoll() {
	w := p.queue
	w.mu.Lock()
	defer w.mu.Unlock()
	p.polls = true
	if w.poll == nil { // the zones of a process poll at the same time, and processes at different times
		w.poll = time.AfterFunc(pollEvery-clock.Elapsed()%pollEvery, w.wakePolls)
	}
}

func (w *waitQueue) wakePolls() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poll = nil
	for _, l := range w.keys {
		if p := oldest(l); p.polls {
			p.polls = false
			p.wakeUp()
		}
	}
}

// wait waits until the request is to ask again: it is the oldest of its key, and retry has
// passed or what it waits for may have changed. With held, it is denied because of what other requests hold, and if it has asked
// before, it also waits until one of them is answered or a poll is due. It reports whether
// the client closed the connection, or the request may not wait any longer.
func (p *waiter) wait(ctx context.Context, retry time.Duration, held bool, left time.Duration) (gone, late bool) {
	begun := time.Now()
	deadline := time.NewTimer(left)
	defer deadline.Stop()
	select {
	case <-p.turn:
	case <-ctx.Done():
		return true, false
	case <-deadline.C:
		return false, true
	}
	if retry > 0 {
		return sleep(ctx, retry-time.Since(begun), p.again), false
	}
	if !held || !p.asked {
		return false, false
	}
	p.waitForPoll()
	select {
	case <-p.wake:
		return false, false
	case <-ctx.Done():
		return true, false
	case <-deadline.C:
		return false, true
	}
}

// sleep waits for d, or until it receives. It reports whether the client closed the connection.
func sleep(ctx context.Context, d time.Duration, again <-chan struct{}) (gone bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-again:
		return false
	case <-ctx.Done():
		return true
	}
}
