package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

// breaker keeps requests from asking a Redis that does not answer. It opens
// after a few failures in a row and closes when a probe succeeds.
type breaker struct {
	open   atomic.Bool
	failed atomic.Int64 // in a row

	mu     sync.Mutex
	since  time.Time // when the state last changed
	notify func(up bool, cause error)
}

// failuresToOpen is how many decisions in a row go wrong before Redis is left
// alone: one can be bad luck.
const failuresToOpen = 3

func newBreaker(notify func(up bool, cause error)) *breaker {
	return &breaker{since: time.Now(), notify: notify}
}

func (b *breaker) success() {
	if b.failed.Load() != 0 {
		b.failed.Store(0)
	}
}

// failure counts a failed call. One that says that Redis is there and refuses
// opens the breaker at once: the next call would be refused as well.
func (b *breaker) failure(f Failure, cause error) {
	if b.failed.Add(1) >= failuresToOpen || f == FailRefused {
		b.set(true, cause)
	}
}

func (b *breaker) close() {
	b.failed.Store(0)
	b.set(false, nil)
}

// set changes the state and tells of it once.
func (b *breaker) set(open bool, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() == open {
		return
	}
	b.open.Store(open)
	b.since = time.Now()
	b.notify(!open, cause)
}

// state says whether Redis is asked, and since when that is so.
func (b *breaker) state() (up bool, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.open.Load(), b.since
}
