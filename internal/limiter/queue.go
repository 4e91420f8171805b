package limiter

import (
	"context"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
)

// maxWaiting is the greatest number of waiting requests per zone, in all handlers that
// have it.
const maxWaiting = 1000

// waitQueue orders the waiting requests of a zone by key: one request of a key retries at
// a time, the oldest first. The zero value is ready for use.
type waitQueue struct {
	mu      sync.Mutex
	waiting int
	keys    map[stores.Key][]*waiter
}

// waiter is a waiting request.
type waiter struct {
	turn chan struct{} // closed once it is the oldest of its key
}

// join adds a request to the queue of a key. It returns false if too many requests wait.
func (w *waitQueue) join(k stores.Key) (*waiter, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting >= maxWaiting {
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

// leave removes a request from the queue of its key.
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

// wait waits until the request may retry: it is the oldest of its key, and retry has
// passed. It reports whether the client closed the connection, or the request was not
// the oldest within the time left.
func (p *waiter) wait(ctx context.Context, retry, left time.Duration) (gone, late bool) {
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

// sleep waits for d. It reports whether the client closed the connection.
func sleep(ctx context.Context, d time.Duration) (gone bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-ctx.Done():
		return true
	}
}
