// Package background runs code of others, such as event handlers, log writers and
// Caddy's storage, in goroutines of its own: it may block, and neither a request nor a
// lock may wait for it.
package background

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/loglimit"
)

// Queue runs functions one at a time, in the order in which they were added, in a goroutine
// that ends when none waits. It is bounded: while it is full, functions are dropped and counted.
type Queue struct {
	logger  *zap.Logger
	size    int
	full    string // the message of the log line about dropped functions
	dropped atomic.Uint64
	line    loglimit.Minute // of that log line

	mu     sync.Mutex
	jobs   []job // waiting
	runs   bool  // the goroutine runs
	closed bool
}

// job is a function, and the key of the value that it stores; empty: it stores none.
type job struct {
	key string
	run func()
}

// NewQueue returns a queue for at most size functions, and a value for each key. full is the
// log message about functions that were dropped, which has their number in the field "dropped".
func NewQueue(logger *zap.Logger, size int, full string) *Queue {
	return &Queue{logger: logger, size: size, full: full}
}

// Add adds a function. It does not block: the function is dropped if the queue is full
// or closed.
func (q *Queue) Add(run func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) >= q.size && !q.closed {
		q.dropped.Add(1)
		return
	}
	q.add(job{run: run})
}

// add adds a job, unless the queue is closed. q.mu is held.
func (q *Queue) add(j job) {
	if q.closed {
		return
	}
	q.jobs = append(q.jobs, j)
	if !q.runs {
		q.runs = true
		go q.run()
	}
}

// SaveTimeout is the longest time that a well-behaved storage takes to store a value.
const SaveTimeout = 2 * time.Second

// Save adds a function that stores a value in Caddy's storage. Of the values that wait under
// one key only the last is stored. failed is called with an error of the storage.
func (q *Queue) Save(storage certmagic.Storage, key string, value []byte, failed func(error)) {
	j := job{key, func() {
		ctx, cancel := context.WithTimeout(context.Background(), SaveTimeout)
		defer cancel()
		if err := storage.Store(ctx, key, value); err != nil {
			failed(err)
		}
	}}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.IndexFunc(q.jobs, func(waits job) bool { return waits.key == key }); i >= 0 {
		q.jobs[i] = j
		return
	}
	q.add(j)
}

// run runs the functions until none waits.
func (q *Queue) run() {
	for j, ok := q.next(); ok; j, ok = q.next() {
		q.do(j.run)
		if q.dropped.Load() > 0 && q.line.Next(clock.Now()) {
			q.logDropped()
		}
	}
}

func (q *Queue) next() (j job, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) == 0 {
		q.jobs, q.runs = nil, false
		return j, false
	}
	j, q.jobs = q.jobs[0], q.jobs[1:]
	return j, true
}

// do runs one function. A panic in a request's goroutine would end that request only, and
// here it must not end the process.
func (q *Queue) do(run func()) {
	defer func() {
		if v := recover(); v != nil {
			q.logger.Error("panic in a background function", zap.Any("error", v), zap.Stack("stack"))
		}
	}()
	run()
}

func (q *Queue) logDropped() {
	if n := q.dropped.Swap(0); n > 0 {
		q.logger.Warn(q.full, zap.Uint64("dropped", n))
	}
}

// Flush waits until the functions that were added have returned, for d at most.
func (q *Queue) Flush(d time.Duration) {
	q.mu.Lock()
	if !q.runs || q.closed {
		q.mu.Unlock()
		return
	}
	done := make(chan struct{})
	q.add(job{run: func() { close(done) }})
	q.mu.Unlock()
	select {
	case <-done:
	case <-time.After(d):
	}
}

// Close drops the functions that have not begun. It does not wait for a running function.
func (q *Queue) Close() {
	q.mu.Lock()
	q.dropped.Add(uint64(len(q.jobs)))
	q.jobs, q.closed = nil, true
	q.mu.Unlock()
	q.logDropped()
}
