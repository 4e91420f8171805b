// Package rules provides rules that replace those of the configuration at run time: a
// [Source] holds a document, [Watch] watches it for changes, and [Parse] parses it.
//
// Sources are Caddy modules in the namespace http.rate_limit.rule_sources.
package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Namespace is the Caddy module namespace of the sources.
const Namespace = "http.rate_limit.rule_sources"

// Names returns the names of all registered sources.
func Names() []string {
	var names []string
	for _, m := range caddy.GetModules(Namespace) {
		names = append(names, m.ID.Name())
	}
	return names
}

// MaxSize is the size of the largest document, in bytes.
const MaxSize = 1 << 20

const (
	minGap     = 100 * time.Millisecond // minimum time between two readings
	firstRetry = 500 * time.Millisecond // after a failed reading; doubles up to the interval
)

// FetchTimeout is the longest that one reading of a source may take.
const FetchTimeout = 10 * time.Second

// Source is a rule source: a module in http.rate_limit.rule_sources.
type Source interface {
	caddy.Module
	Watched

	// Identity returns a text that is equal only for sources with the same document.
	// It is hashed before use.
	Identity() string
}

// Placed is a [Source] that can be reached in other ways, such as with another password. The
// last good document is kept for its place, so that it holds over such a change.
type Placed interface {
	Source

	// Place returns a text that is equal only for sources with the same document, however
	// they are reached. It is hashed before use.
	Place() string
}

// placeOf returns the place of a source.
func placeOf(s Source) string {
	if p, ok := s.(Placed); ok {
		return p.Place()
	}
	return s.Identity()
}

// Watched is what [Watch] reads: a source of documents, or of another text.
type Watched interface {
	// Fetch returns the document, of at most [MaxSize] bytes, [ErrEmpty] if there is
	// none, or [ErrUnchanged] if the document is known to be the one returned last and
	// there was one ever since. Errors may wrap these. They are shown to operators, and must
	// contain no secret. It is not called concurrently.
	Fetch(ctx context.Context) ([]byte, error)

	// Notify calls changed whenever the document may have changed, and failed when
	// changes cannot be watched, until ctx ends. Then it releases its resources. A
	// source without notifications returns at once.
	Notify(ctx context.Context, changed func(), failed func(error))

	// Every returns the interval at which the document is read regardless of
	// notifications.
	Every() time.Duration
}

// Sink receives the documents of a source. Its methods are not called concurrently.
type Sink interface {
	// Document is called with a document that differs from the last.
	Document(text []byte)

	// Unchanged is called after a reading that returned the same document.
	Unchanged()

	// Failed is called after a reading that failed, with [ErrEmpty] if there was no
	// document, and with errors of [Source.Notify].
	Failed(err error)
}

// ErrUnchanged is returned by a source whose document is the one it returned last.
var ErrUnchanged = errors.New("unchanged")

// ErrEmpty is returned by a source that has no document: it is not there, rather than
// unreadable.
var ErrEmpty = errors.New("no document")

// ErrTooLarge is returned for a document larger than [MaxSize].
var ErrTooLarge = fmt.Errorf("over %d bytes: want a smaller document", MaxSize)

// Watch reads a source until ctx ends: on every notification, and at its interval in
// case one was lost, but at most ten times per second.
func Watch(ctx context.Context, s Watched, to Sink) {
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
	source Watched
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
	call, cancel := context.WithTimeout(ctx, FetchTimeout)
	defer cancel()
	text, err := w.source.Fetch(call)
	if ctx.Err() != nil {
		return
	}
	switch {
	case errors.Is(err, ErrUnchanged) || err == nil && w.seen && bytes.Equal(text, w.last):
		w.fails = 0
		w.to.Unchanged()
	case errors.Is(err, ErrEmpty): // a state that may last
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
