// Package rules brings rules from outside the configuration: a [Source] holds a
// document, [Watch] follows it, and [Parse] reads it.
//
// Sources are Caddy modules in the namespace http.rate_limit.rule_sources.
package rules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Namespace is the Caddy module namespace of the sources.
const Namespace = "http.rate_limit.rule_sources"

// MaxSize is the most bytes that a document may have.
const MaxSize = 1 << 20

const (
	defaultInterval = 30 * time.Second
	minGap          = 100 * time.Millisecond // between two readings, however often the source changes
	firstRetry      = 500 * time.Millisecond // after a reading that failed; it doubles up to the interval
	fetchTimeout    = 10 * time.Second
)

// Source is what a module in http.rate_limit.rule_sources implements.
type Source interface {
	caddy.Module

	// Fetch reads the document. It returns [ErrUnchanged] if it can tell that
	// the document is the one it returned last, and a document of at most
	// [MaxSize] bytes otherwise. It is not called twice at once.
	Fetch(ctx context.Context) ([]byte, error)

	// Notify calls changed whenever the document may have changed, until ctx
	// ends, and frees what it took. A source that cannot tell returns at once.
	Notify(ctx context.Context, changed func(), failed func(error))

	// Every is how often the document is read in any case.
	Every() time.Duration

	// Identity tells sources apart: with the same one they hold the same
	// document. It shows no secret.
	Identity() string
}

// Sink is told what a source holds. Its methods are not called at once.
type Sink interface {
	// Document is called with a document that is not the last one again.
	Document(text []byte)

	// Unchanged is called when the source was read and holds what it held.
	Unchanged()

	// Failed is called when the source could not be read.
	Failed(err error)
}

// ErrUnchanged says that a source holds the document that it last returned.
var ErrUnchanged = errors.New("unchanged")

var errNothing = errors.New("nothing there: want a document such as {\"zones\": {}}")

// errTooLarge says that a document is over [MaxSize].
var errTooLarge = fmt.Errorf("over %d bytes: want a smaller document", MaxSize)

// Watch follows a source until ctx ends: it is read when it says that it has
// changed, and at its interval in any case, because a notice may be lost.
// However often it changes, it is read ten times a second at most.
func Watch(ctx context.Context, s Source, to Sink) {
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
	source Source
	to     Sink
	wake   chan struct{}
	lost   chan error // that notices cannot be had
	last   []byte
	seen   bool
	fails  int
}

func (w *watcher) changed() {
	select {
	case w.wake <- struct{}{}:
	default: // it will be read after this change anyway
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
		rest := time.NewTimer(w.pause())
		gap := time.After(minGap)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				rest.Stop()
				return
			case err := <-w.lost:
				w.to.Failed(err)
				continue
			case <-w.wake:
			case <-rest.C:
			}
			waiting = false
		}
		rest.Stop()
		select {
		case <-ctx.Done():
			return
		case <-gap:
		}
	}
}

// pause is how long to wait before the source is read unasked. Instances spread
// their readings.
func (w *watcher) pause() time.Duration {
	d := w.source.Every()
	if w.fails > 0 {
		d = min(d, firstRetry<<min(w.fails-1, 16))
	}
	return d*9/10 + rand.N(d/10+1) //nolint:gosec // it only spreads load
}

func (w *watcher) read(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	text, err := w.source.Fetch(call)
	if ctx.Err() != nil {
		return
	}
	switch {
	case errors.Is(err, ErrUnchanged) || err == nil && w.seen && bytes.Equal(text, w.last):
		w.fails = 0
		w.to.Unchanged()
	case err != nil:
		w.fails++
		w.to.Failed(err)
	default:
		w.fails, w.seen, w.last = 0, true, text
		w.to.Document(text)
	}
}

// limited reads a document, and refuses one that is too large without having
// read all of it.
func limited(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	return sized(text)
}

func sized(text []byte) ([]byte, error) {
	switch {
	case len(text) > MaxSize:
		return nil, errTooLarge
	case len(text) == 0:
		return nil, errNothing
	}
	return text, nil
}

// interval is how often a source is read, in its configuration.
func interval(d caddy.Duration) time.Duration {
	if d == 0 {
		return defaultInterval
	}
	return time.Duration(d)
}

func checkInterval(d caddy.Duration) error {
	if d != 0 && time.Duration(d) < time.Second {
		return fmt.Errorf("interval %v: want at least 1s", time.Duration(d))
	}
	return nil
}
