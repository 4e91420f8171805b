package sourcetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/testkit/testdir"
	"github.com/dianalimiter/diana/rules"
)

// sink records what a source reports.
type sink struct {
	mu       sync.Mutex
	document string
	err      error // of the last reading; nil: it had a document
}

// Document implements follow.Sink.
func (s *sink) Document(text []byte) { s.set(string(text), nil) }

// Unchanged implements follow.Sink.
func (s *sink) Unchanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
}

// Failed implements follow.Sink.
func (s *sink) Failed(err error) { s.set("", err) }

func (s *sink) set(document string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err == nil {
		s.document = document
	}
}

func (s *sink) get() (document string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.document, s.err
}

// watching checks that changes are noticed, that a source which fails is read again, and
// that watching ends.
func watching(t testing.TB, c *Config) {
	s, to := c.open(t), new(sink)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		follow.Watch(ctx, s, to)
	}()
	is := func(what string, ok func(document string, err error) bool) {
		t.Helper()
		until(t, late+c.within(s), what, func() bool { return ok(to.get()) }) // a loaded machine is late
	}
	is("that there is no document", func(_ string, err error) bool { return errors.Is(err, rules.ErrEmpty) })
	for _, d := range []string{documents[0], documents[1], documents[0]} {
		c.Write(t, []byte(d))
		is("the change to "+d, func(got string, err error) bool { return err == nil && c.same(d, []byte(got)) })
	}
	if c.Break != nil {
		mend := c.Break(t)
		is("an error", func(_ string, err error) bool { return err != nil })
		if _, err := to.get(); errors.Is(err, rules.ErrEmpty) || errors.Is(err, rules.ErrUnchanged) {
			t.Errorf("a source that cannot be read: %v, want an error that says so", err)
		}
		mend()
		is("the end of the error", func(got string, err error) bool { return err == nil && c.same(documents[0], []byte(got)) })
	}
	c.Remove(t)
	is("that the document is gone", func(_ string, err error) bool { return errors.Is(err, rules.ErrEmpty) })
	cancel()
	select {
	case <-ended:
	case <-time.After(late):
		t.Error("watching does not end with its context")
	}
}

// target is a configuration that takes every document.
type target struct {
	mu   sync.Mutex
	last *config.Document
}

// Apply implements follow.Target.
func (a *target) Apply(d *config.Document) (report func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = d
	return nil, nil
}

// Unknown implements follow.Target.
func (*target) Unknown(*config.Document) []string { return nil }

func (a *target) has(zone string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last.Of(zone) != nil
}

// following checks that the last document stays in force while the source fails, after it
// is removed, and over a restart.
func following(t testing.TB, c *Config) {
	storage := &certmagic.FileStorage{Path: testdir.New(t)}
	start := func() (*follow.Follower, *target) {
		f, to := follow.New(c.open(t), storage, zap.NewNop(), func() {}), new(target)
		f.Lead(to, storage, zap.NewNop())
		return f, to
	}
	f, to := start()
	state := func(want follow.State) {
		t.Helper()
		until(t, late+c.within(c.open(t)), "the state "+string(want), func() bool { return f.Status().State == want })
	}
	state(follow.StateEmpty)
	c.Write(t, []byte(documents[0]))
	state(follow.StateOK)
	mend := func() {}
	if c.Break != nil {
		mend = c.Break(t)
	} else {
		c.Remove(t)
	}
	state(follow.StateAway)
	if !to.has("a") {
		t.Error("the last document is not in force while the source is away")
	}
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
	f, to = start() // as a process that is started again
	state(follow.StateAway)
	if !to.has("a") {
		t.Error("the last document is not in force after a restart with the source away")
	}
	mend()
	c.Write(t, []byte(documents[1]))
	until(t, late+c.within(c.open(t)), "the new document", func() bool { return to.has("b") }) // the old one may be read before
	state(follow.StateOK)
	if to.has("a") {
		t.Error("the old document is in force beside the new one")
	}
	c.Remove(t)
	state(follow.StateAway)
	if !to.has("b") {
		t.Error("the last document is not in force after it was removed")
	}
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
}
