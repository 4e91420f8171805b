package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

// breaker stops calls to a node that does not answer. It opens after
// failuresToOpen failures in a row and closes when a heartbeat of the node succeeds.
type breaker struct {
	open   atomic.Bool
	opened atomic.Uint64 // how often
	failed atomic.Int64  // in a row

	mu        sync.Mutex
	since     time.Time    // when the state last changed
	changes   []transition // of which notify has not been told
	notifying bool         // a goroutine tells it

	// notify is told of each change once and in order. No lock is held, and another
	// change may have followed.
	notify func(up bool, cause error)

	// closing is called before the breaker closes, with b.mu held.
	closing func()
}

// transition is a change of the state.
type transition struct {
	up    bool
	cause error
}

// failuresToOpen is how many failures in a row open the breaker. One may be an
// accident.
const failuresToOpen = 3

func newBreaker(closing func(), notify func(up bool, cause error)) *breaker {
	return &breaker{since: time.Now(), closing: closing, notify: notify}
}

func (b *breaker) success() {
	if b.failed.Load() != 0 {
		b.failed.Store(0)
	}
}

// failure counts a call that failed because of the node. A refusal opens the
// breaker at once, because the next call would be refused as well.
func (b *breaker) failure(f Failure, cause error) {
	if b.failed.Add(1) >= failuresToOpen || f == FailRejected {
		b.trip(cause)
	}
}

// close closes the breaker after a call that succeeded. opened is what b.opened was
// when the call was sent: if the breaker has opened since, the reply is older than
// the failures that opened it.
func (b *breaker) close(opened uint64) {
	b.mu.Lock()
	defer b.unlock()
	if b.opened.Load() == opened {
		b.failed.Store(0)
		b.change(false, nil)
	}
}

func (b *breaker) trip(cause error) {
	b.mu.Lock()
	defer b.unlock()
	b.change(true, cause)
}

// begin opens a breaker that was not used yet, and notifies nobody.
func (b *breaker) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.opened.Load() == 0 {
		b.opened.Add(1)
		b.open.Store(true)
	}
}

// change changes the state. b.mu is held.
func (b *breaker) change(open bool, cause error) {
	if b.open.Load() == open {
		return
	}
	if open {
		b.opened.Add(1)
	} else {
		b.closing()
	}
	b.open.Store(open)
	b.since = time.Now()
	b.changes = append(b.changes, transition{!open, cause})
}

// unlock unlocks b.mu and notifies of the changes, unless another goroutine does.
func (b *breaker) unlock() {
	if !b.notifying {
		b.notifying = true
		for len(b.changes) > 0 {
			c := b.changes[0]
			b.changes = b.changes[1:]
			b.mu.Unlock()
			b.notify(c.up, c.cause)
			b.mu.Lock()
		}
		b.notifying, b.changes = false, nil
	}
	b.mu.Unlock()
}

// state says whether the breaker is closed, and since when.
func (b *breaker) state() (up bool, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open.Load(), b.since
}
