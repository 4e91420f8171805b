package rules

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// picky is a configuration that refuses a zone of this name.
type picky string

func (p picky) Apply(d *Document) (report func(), err error) {
	if d.Of(string(p)) != nil {
		return nil, errors.New("refused")
	}
	return nil, nil
}

func (picky) Unknown(*Document) []string { return nil }

// TestMissingDocument checks that a source without a document is empty until one was in
// force, also in an earlier process with another configuration, and that a refused one is
// refused again.
func TestMissingDocument(t *testing.T) {
	storage := &certmagic.FileStorage{Path: t.TempDir()}
	path := filepath.Join(t.TempDir(), "rules.json")
	var f *Follower
	follow := func(refuses picky) {
		source := &File{Path: path, Interval: caddy.Duration(time.Hour)}
		if err := source.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		f = NewFollower(source, storage, zap.NewNop(), func() {})
		f.Lead(refuses, storage, zap.NewNop())
	}
	is := func(want State) {
		t.Helper()
		// Before the first reading the state is away, without an error.
		waitFor(t, string(want), func() bool {
			st := f.Status()
			return st.State == want && (st.Err == nil) == (want == StateOK || want == StateEmpty)
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
	follow("bad")
	is(StateEmpty)
	for range 2 {
		write(`{"zones": {"bad": {}}}`)
		is(StateRefused)
		remove()
		is(StateEmpty)
	}
	write(`{"zones": {}}`)
	is(StateOK)
	remove()
	is(StateAway)
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
	follow("bad") // as another process
	is(StateAway)
	write(`{"zones": {"good": {}}}`)
	is(StateOK)
	remove()
	is(StateAway)
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
	follow("good") // what it stored does not fit any more
	is(StateAway)
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
}
