package limiter

import (
	"testing"
	"time"

	"github.com/dianalimiter/diana/stores"
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
	var all []*waiter
	for i := range zoneWaiting {
		k := stores.Key{Lo: uint64(i % 20)}
		w, ok := q.join(k, 0, false)
		if !ok {
			t.Fatalf("%d waiting: join failed", i)
		}
		if isTurn(w) != (i < 20) {
			t.Errorf("waiter %d: its turn: %v", i, isTurn(w))
		}
		all = append(all, w)
	}
	if _, ok := q.join(stores.Key{}, 0, false); ok {
		t.Errorf("%d waiting: join succeeded, want the queue full", zoneWaiting)
	}
	for i, w := range all {
		if !isTurn(w) {
			t.Errorf("waiter %d: not its turn, though it is the oldest of its key", i)
		}
		w.leave()
	}
	if q.slots.Load() != 0 || q.queued.Load() != 0 || len(q.keys) != 0 {
		t.Errorf("%d slots, %d waiting under %d keys, want none", q.slots.Load(), q.queued.Load(), len(q.keys))
	}
}

// TestQueueBounds checks the bound of a key and of a zone. A request that is turned away has
// no slot.
func TestQueueBounds(t *testing.T) {
	for _, c := range []struct{ maxWaiting, ofKey, ofZone int64 }{{0, 1000, 1000}, {3, 3, 1000}, {1000, 1000, 1000}, {1500, 1500, 1500}} {
		var q waitQueue
		join := func(k uint64) bool { _, ok := q.join(stores.Key{Lo: k}, c.maxWaiting, false); return ok }
		n := int64(0)
		for join(0) {
			n++
		}
		if n != c.ofKey {
			t.Errorf("max_waiting %d: %d of a key wait, want %d", c.maxWaiting, n, c.ofKey)
		}
		for k := uint64(1); join(k); k++ {
			n++
		}
		if n != c.ofZone || q.slots.Load() != n || q.queued.Load() != n {
			t.Errorf("max_waiting %d: %d of a zone wait, with %d slots, want %d", c.maxWaiting, n, q.slots.Load(), c.ofZone)
		}
	}
}

// TestQueueAsksAgain checks that a reset ends the sleep of all requests of its key, each when its turn
// comes, and of no other key; a change of rules that of all.
func TestQueueAsksAgain(t *testing.T) {
	var q waitQueue
	one, two := stores.Key{Lo: 1}, stores.Key{Lo: 2}
	woken := make(chan stores.Key)
	for _, k := range []stores.Key{one, one, two} {
		p, ok := q.join(k, 0, false)
		if !ok {
			t.Fatal("the queue is full")
		}
		go func() {
			gone, late := p.wait(t.Context(), time.Hour, false, 2*time.Hour)
			p.leave()
			if !gone && !late {
				woken <- p.key
			}
		}()
	}
	want := func(what string, keys ...stores.Key) {
		t.Helper()
		for _, k := range keys {
			select {
			case got := <-woken:
				if got != k {
					t.Errorf("%s: %v asks, want %v", what, got, k)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: nobody asks, want %v", what, k)
			}
		}
		select {
		case got := <-woken:
			t.Errorf("%s: %v asks, too", what, got)
		case <-time.After(20 * time.Millisecond):
		}
	}
	q.wasReset(stores.Key{Lo: 3})
	want("another key")
	q.wasReset(one)
	want("a reset", one, one)
	q.changed()
	want("other rules", two)
}
