package redis

import (
	"context"
	"sync"
	"time"
)

// deadline is the context of a call: it ends at a time, and not before. A call over a connection that is
// ready reads and writes by that time itself, and nobody waits for the context. So its timer, which costs a
// call some 500 instructions, is only set when somebody waits. The pool, which gives a call its connection,
// first only looks whether the context has ended: the first call of Done sets no timer.
type deadline struct {
	at time.Time

	mu     sync.Mutex
	looked bool
	timer  context.Context // nil: nobody waits
	cancel context.CancelFunc
}

// Deadline implements [context.Context].
func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

// Done implements [context.Context].
func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.looked && d.Err() == nil {
		d.looked = true
		return nil
	}
	if d.timer == nil {
		d.timer, d.cancel = context.WithDeadline(context.Background(), d.at)
	}
	return d.timer.Done()
}

// Err implements [context.Context].
func (d *deadline) Err() error {
	if time.Until(d.at) > 0 {
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements [context.Context].
func (*deadline) Value(any) any { return nil }

// release stops the timer.
func (d *deadline) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.cancel()
	}
}
