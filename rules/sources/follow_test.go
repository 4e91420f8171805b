package sources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/testkit/testdir"
	"github.com/dianalimiter/diana/rules"
)

// picky is a configuration that refuses a zone of this name.
type picky string

func (p picky) Apply(d *config.Document) (report func(), err error) {
	if d.Of(string(p)) != nil {
		return nil, errors.New("refused")
	}
	return nil, nil
}

func (picky) Unknown(*config.Document) []string { return nil }

// TestMissingDocument checks that a source without a document is empty until one was in
// force, also in an earlier process with another configuration, and that a refused one is
// refused again.
func TestMissingDocument(t *testing.T) {
	storage := &certmagic.FileStorage{Path: testdir.New(t)}
	path := filepath.Join(t.TempDir(), "rules.json")
	var f *follow.Follower
	start := func(refuses picky) {
		source := &File{Path: path, Interval: caddy.Duration(time.Hour)}
		if err := source.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		f = follow.New(source, storage, zap.NewNop(), func() {})
		f.Lead(refuses, storage, zap.NewNop())
	}
	is := func(want follow.State) {
		t.Helper()
		// Before the first reading the state is away, without an error.
		waitFor(t, string(want), func() bool {
			st := f.Status()
			return st.State == want && (st.Err == nil) == (want == follow.StateOK || want == follow.StateEmpty)
		})
	}
	write := func(document string) {
		t.Helper()
		for _, err := range []error{os.WriteFile(path+".new", []byte(document), 0o600), os.Rename(path+".new", path)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func() { _ = os.Remove(path) }
	start("bad")
	is(follow.StateEmpty)
	for range 2 {
		write(`{"zones": {"bad": {}}}`)
		is(follow.StateRejected)
		remove()
		is(follow.StateEmpty)
	}
	write(`{"zones": {}}`)
	is(follow.StateOK)
	remove()
	is(follow.StateAway)
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
	start("bad") // as another process
	is(follow.StateAway)
	write(`{"zones": {"good": {}}}`)
	is(follow.StateOK)
	remove()
	is(follow.StateAway)
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
	start("good") // what it stored does not fit any more
	is(follow.StateAway)
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
}

// flaky is a source that returns what fetch does.
type flaky struct {
	File
	fetch func() ([]byte, error)
}

func (s *flaky) Fetch(context.Context) ([]byte, error) { return s.fetch() }

func (*flaky) Notify(context.Context, func(), func(error)) {}

func (*flaky) Every() time.Duration { return 10 * time.Second }

// TestOutageOfSourceIsLoggedOnce checks that an outage is one line when it begins, one a
// minute while it lasts, and one when it ends, although each of its errors has another text.
func TestOutageOfSourceIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		n, document, failing := 0, `{"zones": {}}`, error(nil)
		set := func(text string, err error) {
			mu.Lock()
			defer mu.Unlock()
			document, failing = text, err
		}
		s := &flaky{fetch: func() ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			n++
			if failing != nil {
				return nil, fmt.Errorf("port %d: %w", n, failing)
			}
			return []byte(document), nil
		}}
		core, lines := observer.New(zap.InfoLevel)
		storage := &certmagic.FileStorage{Path: testdir.New(t)}
		f := follow.New(s, storage, zap.New(core), func() {})
		f.Lead(picky(""), storage, zap.New(core))
		after := func(d time.Duration, want ...string) []observer.LoggedEntry {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			all := lines.TakeAll()
			var got []string
			for _, l := range all {
				got = append(got, l.Message)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("logged %q, want %q", got, want)
			}
			return all
		}
		const (
			away    = "the source of rules cannot be read: the rules in force stay"
			back    = "the source of rules can be read again"
			lost    = "the source of rules has lost its document: the rules in force stay"
			refused = "the remote rules are rejected: the previous rules stay in force"
			applied = "remote rules are in force"
		)
		after(time.Second, applied)
		set("", errors.New("connection refused"))
		after(30*time.Second, away)
		repeated := after(time.Minute, away)
		if got := repeated[0].ContextMap()["suppressed"]; got == nil || got.(int64) < 6 {
			t.Errorf("suppressed %v, want the errors of a minute", got)
		}
		set("", rules.ErrEmpty) // as Redis without persistence comes back
		after(15*time.Second, lost)
		set(`{"zones": {}}`, nil)
		after(15*time.Second, back)
		after(10 * time.Minute)

		// Each document that is refused is logged, and the next that is in force, also if it is
		// the one before.
		set(`{"zones": 1}`, nil)
		after(15*time.Second, refused)
		set(`{"zones": 2}`, nil)
		after(15*time.Second, refused)
		after(10 * time.Minute)
		set(`{"zones": {}}`, nil)
		after(15*time.Second, applied)
		if err := f.Destruct(); err != nil {
			t.Error(err)
		}
	})
}

// panicking is a configuration with a bug.
type panicking struct{ picky }

func (panicking) Apply(*config.Document) (report func(), err error) { panic("a bug") }

// TestPanicRejectsTheDocument checks that a panic in what reads a document does not end the process.
func TestPanicRejectsTheDocument(t *testing.T) {
	storage := &certmagic.FileStorage{Path: testdir.New(t)}
	source := &File{Path: filepath.Join(t.TempDir(), "rules.json"), Interval: caddy.Duration(time.Hour)}
	if err := source.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	f := follow.New(source, storage, zap.NewNop(), func() {})
	if err := os.WriteFile(source.Path, []byte(`{"zones": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Lead(panicking{}, storage, zap.NewNop())
	waitFor(t, "the document to be rejected", func() bool { return f.Status().State == follow.StateRejected })
	if st := f.Status(); st.Err == nil || st.Err.Error() != "panic: a bug" || f.Good() != nil {
		t.Errorf("rejected because of %v, in force: %v", st.Err, f.Good())
	}
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
}

// TestDocumentOfAReloadIsStored has a reload put a document in force that was rejected before.
func TestDocumentOfAReloadIsStored(t *testing.T) {
	storage := &certmagic.FileStorage{Path: testdir.New(t)}
	source := &File{Path: filepath.Join(t.TempDir(), "rules.json"), Interval: caddy.Duration(time.Hour)}
	if err := source.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source.Path, []byte(`{"zones": {"late": {}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f := follow.New(source, storage, zap.NewNop(), func() {})
	f.Lead(picky("late"), storage, zap.NewNop())
	waitFor(t, "the document to be rejected", func() bool { return f.Status().State == follow.StateRejected })
	f.Lead(picky("other"), storage, zap.NewNop())
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
	if d := follow.New(source, storage, zap.NewNop(), func() {}).Good(); d == nil || d.Of("late") == nil {
		t.Errorf("the next process begins with %v", d)
	}
}
