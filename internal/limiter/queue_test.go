package limiter

import (
	"testing"

	"github.com/dianalimiter/diana/internal/stores"
)

// TestQueueKeepsNoKeys checks that a waiter that leaves the queue passes the turn to
// the next of its key, and that no key remains.
func TestQueueKeepsNoKeys(t *testing.T) {
	var q waitQueue
	isTurn := func(w *waiter) bool {
		select {
		case <-w.turn:
			return true
		default:
			return false
		}
	}
	type queued struct {
		key stores.Key
		w   *waiter
	}
	var all []queued
	for i := range maxWaiting {
		k := stores.Key{Lo: uint64(i % 20)}
		w, ok := q.join(k)
		if !ok {
			t.Fatalf("%d waiting: join failed", i)
		}
		if isTurn(w) != (i < 20) {
			t.Errorf("waiter %d: its turn: %v", i, isTurn(w))
		}
		all = append(all, queued{k, w})
	}
	if _, ok := q.join(stores.Key{}); ok {
		t.Errorf("%d waiting: join succeeded, want the queue full", maxWaiting)
	}
	for i, w := range all {
		if !isTurn(w.w) {
			t.Errorf("waiter %d: not its turn, though it is the oldest of its key", i)
		}
		q.leave(w.key, w.w)
	}
	if q.waiting != 0 || len(q.keys) != 0 {
		t.Errorf("%d waiting under %d keys, want none", q.waiting, len(q.keys))
	}
}
