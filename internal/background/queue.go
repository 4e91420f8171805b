// Package background runs code of others, such as event handlers, log writers and
// Caddy's storage, in goroutines of its own: it may block, and neither a request nor a
// lock may wait for it.
package background

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/clock"
	"github.com/dianalimiter/diana/internal/loglimit"
)

// Queue runs functions one at a time, in the order in which they were added. It is
// bounded: while it is full, functions are dropped and counted.
type Queue struct {
	jobs    chan func()
	logger  *zap.Logger
	full    string // the message of the log line about dropped functions
	dropped atomic.Uint64
	line    loglimit.Minute // of that log line

	close sync.Once
	stop  chan struct{} // closed by Close
	ended chan struct{} // closed when the last function has returned
}

// NewQueue returns a queue for at most size functions. full is the log message about
// functions that were dropped, which has their number in the field "dropped". Close must
// be called.
func NewQueue(logger *zap.Logger, size int, full string) *Queue {
	q := &Queue{
		jobs: make(chan func(), size), logger: logger, full: full,
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go q.run()
	return q
}

// Add adds a function. It does not block: the function is dropped if the queue is full
// or closed.
func (q *Queue) Add(job func()) {
	select {
	case <-q.stop:
		return
	default:
	}
	select {
	case q.jobs <- job:
	default:
		q.dropped.Add(1)
	}
}

// run runs the functions until the queue is closed.
func (q *Queue) run() {
	defer close(q.ended)
	for {
		select {
		case <-q.stop:
			return
		default:
		}
		select {
		case <-q.stop:
			return
		case job := <-q.jobs:
			q.do(job)
			if q.dropped.Load() > 0 && q.line.Next(clock.Now()) {
				q.logDropped()
			}
		}
	}
}

// do runs one function. A panic in a request's goroutine would end that request only, and
// here it must not end the process.
func (q *Queue) do(job func()) {
	defer func() {
		if v := recover(); v != nil {
			q.logger.Error("panic in a background function", zap.Any("error", v), zap.Stack("stack"))
		}
	}()
	job()
}

func (q *Queue) logDropped() {
	if n := q.dropped.Swap(0); n > 0 {
		q.logger.Warn(q.full, zap.Uint64("dropped", n))
	}
}

// Flush waits until the functions that were added have returned, for d at most.
func (q *Queue) Flush(d time.Duration) {
	done, late := make(chan struct{}), time.After(d)
	select {
	case q.jobs <- func() { close(done) }:
	case <-q.ended:
		return
	case <-late:
		return
	}
	select {
	case <-done:
	case <-q.ended:
	case <-late:
	}
}

// Close drops the functions that have not begun, and ends the queue once the one that
// runs has returned. It does not wait for that.
func (q *Queue) Close() {
	q.close.Do(func() {
		close(q.stop)
		for {
			select {
			case <-q.jobs:
				q.dropped.Add(1)
				continue
			default:
			}
			break
		}
		q.logDropped()
	})
}
