// Package sourcetest tests a source of rules of another module as this module tests its own:
// reading, notifications, limits, and faults. docs/internals/new-rule-source.md explains what a source
// has to do.
//
//	func TestSource(t *testing.T) {
//		dir := t.TempDir()
//		path := filepath.Join(dir, "rules.json")
//		sourcetest.Run(t, sourcetest.Config{
//			New:    func(testing.TB) rules.Source { return &MySource{Path: path} },
//			Write:  func(t testing.TB, document []byte) { ... },
//			Remove: func(t testing.TB) { ... },
//			Break:  func(t testing.TB) (mend func()) { ... },
//		})
//	}
package sourcetest

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/rules"
)

// Config describes a source to test. There is no document at first.
type Config struct {
	// New returns a source as Caddy has decoded it from a configuration, each time with
	// the same options. It is provisioned by the test.
	New func(t testing.TB) rules.Source

	// Write creates or replaces the document, at once.
	Write func(t testing.TB, document []byte)

	// Remove removes the document, as someone would who wants none.
	Remove func(t testing.TB)

	// Break makes the source unreadable until mend is called, after which it has the same
	// document as before. Nil: there is no way to.
	Break func(t testing.TB) (mend func())

	// Within is how long a change may take to be noticed. Default: the interval of the
	// source and a second.
	Within time.Duration

	// Same reports whether the document that the source returns is the document that Write
	// wrote, for a source that changes its text. Nil: the text is the same.
	Same func(wrote, got []byte) bool
}

// Run runs all tests of a source, as subtests.
func Run(t *testing.T, c Config) {
	for name, test := range map[string]func(testing.TB, *Config){
		"reading": reading, "limits": limits, "watching": watching, "following": following, "identity": identity,
	} {
		c.Remove(t)
		t.Run(name, func(t *testing.T) { test(t, &c) })
	}
}

// late is how long anything may take that should take no time, on a loaded machine.
const late = 20 * time.Second

// documents are two documents that differ, and have the same size.
var documents = [2]string{`{"zones":{"a":{"shadow":true}}}`, `{"zones":{"b":{"shadow":true}}}`}

// open returns a provisioned source.
func (c *Config) open(t testing.TB) rules.Source {
	t.Helper()
	s := c.New(t)
	if p, ok := s.(caddy.Provisioner); ok {
		ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
		t.Cleanup(cancel)
		if err := p.Provision(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// within returns how long a change may take to be noticed.
func (c *Config) within(s rules.Source) time.Duration {
	if c.Within > 0 {
		return c.Within
	}
	return s.Every() + time.Second
}

func (c *Config) same(wrote string, got []byte) bool {
	if c.Same != nil {
		return c.Same([]byte(wrote), got)
	}
	return wrote == string(got)
}

// fetch reads a source. It fails the test if that takes too long.
func fetch(t testing.TB, s rules.Source) ([]byte, error) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), late/2)
	defer cancel()
	text, err := s.Fetch(ctx)
	if took := time.Since(began); took > late {
		t.Errorf("Fetch took %v, want it to end with its context", took)
	}
	return text, err
}

// until waits until ok returns true.
func until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
