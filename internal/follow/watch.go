package follow

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dianalimiter/diana/rules"
)

const (
	minGap     = 100 * time.Millisecond // minimum time between two readings
	firstRetry = 500 * time.Millisecond // after a failed reading; doubles up to the interval
)

// Sink receives the documents of what is watched. Its methods are not called concurrently.
type Sink interface {
	// Document is called with a document that differs from the last.
	Document(text []byte)

	// Unchanged is called after a reading that returned the same document.
	Unchanged()

	// Failed is called after a reading that failed, with [rules.ErrEmpty] if there was no
	// document, and with errors of [rules.Watched.Notify].
	Failed(err error)
}

// Watch reads a source until ctx ends: on every notification, and at its interval in
// case one was lost, but at most ten times per second.
func Watch(ctx context.Context, s rules.Watched, to Sink) {
	w := watcher{source: s, to: to, wake: make(chan struct{}, 1), lost: make(chan error, 1)}
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		s.Notify(ctx, w.changed, w.failed)
	}()
	w.run(ctx)
	<-notified
}

type watcher struct {
	source rules.Watched
	to     Sink
	wake   chan struct{}
	lost   chan error // errors of Watched.Notify
	last   []byte
	seen   bool
	fails  int
}

func (w *watcher) changed() {
	select {
	case w.wake <- struct{}{}:
	default: // a reading is pending already
	}
}

func (w *watcher) failed(err error) {
	select {
	case w.lost <- err:
	default:
	}
}

func (w *watcher) run(ctx context.Context) {
	for {
		w.read(ctx)
		rest, gap := time.After(w.pause()), time.After(minGap)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case err := <-w.lost:
				w.to.Failed(err)
				continue
			case <-w.wake:
			case <-rest:
			}
			waiting = false
		}
		select {
		case <-ctx.Done():
			return
		case <-gap:
		}
	}
}

// pause returns the time to the next reading without a notification. It is random, so
// that instances spread their readings.
func (w *watcher) pause() time.Duration {
	d := w.source.Every()
	if w.fails > 0 {
		d = min(d, firstRetry<<min(w.fails-1, 16))
	}
	return d*9/10 + rand.N(d/10+1) //nolint:gosec // it only spreads load
}

func (w *watcher) read(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, rules.FetchTimeout)
	defer cancel()
	text, err := w.source.Fetch(call)
	if ctx.Err() != nil {
		return
	}
	switch {
	case errors.Is(err, rules.ErrUnchanged) || err == nil && w.seen && bytes.Equal(text, w.last):
		w.fails = 0
		w.to.Unchanged()
	case errors.Is(err, rules.ErrEmpty): // a state that may last
		w.fails, w.seen = 0, false
		w.to.Failed(err)
	case err != nil:
		w.fails++
		w.to.Failed(err)
	default:
		w.fails, w.seen, w.last = 0, true, text
		w.to.Document(text)
	}
}
