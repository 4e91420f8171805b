package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dianalimiter/diana/rules"
)

// reading reads documents that are created, replaced and removed.
func reading(t testing.TB, c *Config) {
	s := c.open(t)
	if text, err := fetch(t, s); !errors.Is(err, rules.ErrEmpty) {
		t.Errorf("without a document: %.100q, %v, want ErrEmpty", text, err)
	}
	for _, d := range []string{documents[0], documents[1], documents[1], documents[0]} {
		c.Write(t, []byte(d))
		text, err := fetch(t, s)
		if err != nil && !errors.Is(err, rules.ErrUnchanged) || err == nil && !c.same(d, text) {
			t.Errorf("%.100q, %v, want %q", text, err, d)
		}
		if text, err := fetch(t, s); !errors.Is(err, rules.ErrUnchanged) && (err != nil || !c.same(d, text)) {
			t.Errorf("read again: %.100q, %v, want the same or ErrUnchanged", text, err)
		}
	}
	c.Remove(t)
	if text, err := fetch(t, s); !errors.Is(err, rules.ErrEmpty) {
		t.Errorf("after the document was removed: %.100q, %v, want ErrEmpty", text, err)
	}
	c.Write(t, []byte(documents[0]))
	if text, err := fetch(t, s); err != nil || !c.same(documents[0], text) {
		t.Errorf("the document that was there before: %.100q, %v, want %q", text, err, documents[0])
	}
}

// limits reads documents of the greatest size and above, and with a context that has ended.
func limits(t testing.TB, c *Config) {
	s := c.open(t)
	c.Write(t, padded(rules.MaxSize))
	if text, err := fetch(t, s); err != nil || !c.same(string(padded(rules.MaxSize)), text) {
		t.Errorf("a document of %d bytes: %d bytes, %v", rules.MaxSize, len(text), err)
	}
	for _, size := range []int{rules.MaxSize + 1, 4 * rules.MaxSize} {
		c.Write(t, padded(size))
		if text, err := fetch(t, s); err == nil && len(text) <= rules.MaxSize || errors.Is(err, rules.ErrEmpty) || errors.Is(err, rules.ErrUnchanged) || len(text) > rules.MaxSize+1 {
			t.Errorf("a document of %d bytes: %d bytes, %v, want an error", size, len(text), err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.Fetch(ctx)
	}()
	select {
	case <-ended:
	case <-time.After(late):
		t.Error("Fetch does not end with its context")
	}
}

// padded returns a document of a size.
func padded(size int) []byte {
	return append([]byte(documents[0]), bytes.Repeat([]byte(" "), size-len(documents[0]))...)
}

// identity checks what a follower relies on to keep a source over a reload.
func identity(t testing.TB, c *Config) {
	a, b := c.open(t), c.open(t)
	if a.Identity() == "" || a.Identity() != b.Identity() {
		t.Errorf("identities %q and %q of the same options: want them equal, and not empty", a.Identity(), b.Identity())
	}
	if a.Every() < time.Second {
		t.Errorf("an interval of %v: want at least 1s", a.Every())
	}
	if id := a.CaddyModule().ID; id.Namespace() != rules.Namespace {
		t.Errorf("module %s: want it in %s", id, rules.Namespace)
	}
}
