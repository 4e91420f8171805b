package diana

import (
	"context"
	"sync"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// maxWaiting is how many requests wait in a zone at most.
const maxWaiting = 1000

// heldRetry is how long to wait for requests that nobody knows the end of.
const heldRetry = time.Second

// decide asks the stores, and again after waiting where the zones allow it. It
// reports whether the client went away meanwhile.
func (q *request) decide(ctx context.Context) (gone bool) {
	for i := range q.uses {
		if u := &q.uses[i]; u.label != "" && !u.shadow {
			q.outright = u
			return false // nothing is charged, so nothing need be asked
		}
	}
	if len(q.ask.Zones) == 0 {
		q.ask.Admitted = true
		return false
	}
	q.decideOnce(ctx)
	if q.ask.Admitted || q.unjudged() {
		return false
	}
	return q.wait(ctx)
}

// timedEvery is how many decisions in this process come to one that is timed:
// reading the clock twice more would take a good part of what they take.
const timedEvery = 16

func (q *request) decideOnce(ctx context.Context) {
	local := !q.h.across && q.stores[0] == q.h.app.local
	timed := !local || q.decided%timedEvery == 0
	q.decided++
	var begun time.Duration
	if timed {
		begun = time.Since(started) // which reads one clock: time.Now reads two
	}
	if q.h.across {
		stores.Across(ctx, &q.ask, q.stores)
	} else {
		q.stores[0].Decide(ctx, &q.ask)
	}
	if !timed {
		return
	}
	took := time.Since(started) - begun
	for i := range q.uses {
		u := &q.uses[i]
		if u.item >= 0 || u.twin >= 0 {
			u.z.metrics.observe(took, q.ask.Mode)
		}
	}
}

// wait waits for room, as long as every zone that denies allows, and asks again.
func (q *request) wait(ctx context.Context) (gone bool) {
	z, key, budget := q.patience()
	if budget == 0 {
		return false
	}
	begun := time.Now()
	place, ok := z.queue.join(key)
	if !ok {
		return false
	}
	defer z.queue.leave(key, place)
	for {
		left := budget - time.Since(begun)
		retry, can := q.retryIn()
		if !can || retry > left {
			return false
		}
		if gone, late := place.sleep(ctx, retry, left); gone || late {
			return gone
		}
		q.waited = true
		q.decideOnce(ctx)
		if q.ask.Admitted || q.unjudged() {
			return false
		}
		if _, _, b := q.patience(); b == 0 {
			return false
		} else if b < budget {
			budget = b
		}
	}
}

// patience is how long the request may wait in all, 0 if it may not, and whose
// queue it joins: that of the first zone that denies.
func (q *request) patience() (first *zone, key stores.Key, budget time.Duration) {
	for i := range q.uses {
		u := &q.uses[i]
		if u.shadow || u.z.maxWait == 0 && q.denies(u) {
			if u.shadow {
				continue
			}
			return nil, key, 0
		}
		if !q.denies(u) {
			continue
		}
		if u.twin >= 0 && !q.ask.Zones[u.twin].Admits {
			return nil, key, 0 // a duplicate is never waited for
		}
		if first == nil || u.z.maxWait < budget {
			budget = u.z.maxWait
		}
		if first == nil {
			first, key = u.z, q.ask.Zones[u.item].Key
		}
		for r, res := range q.ask.Zones[u.item].Results {
			if !res.Admit && u.set.isDelayed[r] {
				return nil, key, 0 // its queue is full: waiting for the queue is no queue
			}
		}
	}
	return first, key, budget
}

// denies says whether a zone denies.
func (q *request) denies(u *use) bool {
	return u.item >= 0 && !q.ask.Zones[u.item].Admits || u.twin >= 0 && !q.ask.Zones[u.twin].Admits
}

// retryIn is after how long the request would pass if nobody else came; false
// if it never would.
func (q *request) retryIn() (time.Duration, bool) {
	var longest time.Duration
	for i := range q.ask.Zones {
		it := &q.ask.Zones[i]
		if it.Shadow || it.Admits {
			continue
		}
		if it.Full {
			longest = max(longest, heldRetry)
		}
		for _, res := range it.Results {
			switch {
			case res.Admit:
			case res.Retry == algorithms.Never:
				return 0, false
			case res.Held:
				longest = max(longest, heldRetry)
			default:
				longest = max(longest, time.Duration(res.Retry)*time.Microsecond)
			}
		}
	}
	return longest, true
}

// waitQueue lets the waiting requests of a key ask one after the other, the
// oldest first.
type waitQueue struct {
	mu      sync.Mutex
	max     int
	waiting int
	keys    map[stores.Key][]*waiter
}

// waiter is a request's place in the queue. turn is closed when it is the first.
type waiter struct {
	turn chan struct{}
}

// join queues a request, unless too many wait already.
func (w *waitQueue) join(k stores.Key) (*waiter, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting >= w.max {
		return nil, false
	}
	w.waiting++
	if w.keys == nil {
		w.keys = make(map[stores.Key][]*waiter)
	}
	p := &waiter{turn: make(chan struct{})}
	w.keys[k] = append(w.keys[k], p)
	if len(w.keys[k]) == 1 {
		close(p.turn)
	}
	return p, true
}

// leave lets the next of the key ask.
func (w *waitQueue) leave(k stores.Key, p *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	list := w.keys[k]
	for i := range list {
		if list[i] != p {
			continue
		}
		list = append(list[:i:i], list[i+1:]...)
		if i == 0 && len(list) > 0 {
			close(list[0].turn)
		}
		break
	}
	if len(list) == 0 {
		delete(w.keys, k)
	} else {
		w.keys[k] = list
	}
}

// sleep waits until the request may ask again: it is the oldest, and its retry
// has passed. late says that its patience ended before.
func (p *waiter) sleep(ctx context.Context, retry, left time.Duration) (gone, late bool) {
	deadline := time.NewTimer(left)
	defer deadline.Stop()
	ready := time.NewTimer(retry)
	defer ready.Stop()
	select {
	case <-p.turn:
	case <-ctx.Done():
		return true, false
	case <-deadline.C:
		return false, true
	}
	select {
	case <-ready.C:
	case <-ctx.Done():
		return true, false
	}
	return false, false
}

// pause waits for a turn. It reports whether the client went away.
func pause(ctx context.Context, d time.Duration) (gone bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-ctx.Done():
		return true
	}
}
