package follow

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/testkit/testdir"
	"github.com/dianalimiter/diana/rules"
)

// still is a source that never changes.
type still struct{}

func (still) CaddyModule() caddy.ModuleInfo               { return caddy.ModuleInfo{ID: rules.Namespace + ".still"} }
func (still) Fetch(context.Context) ([]byte, error)       { return nil, rules.ErrUnchanged }
func (still) Notify(context.Context, func(), func(error)) {}
func (still) Every() time.Duration                        { return time.Hour }
func (still) Identity() string                            { return "still" }

// picky is a configuration that refuses a zone of this name.
type picky string

func (p picky) Apply(d *config.Document) (report func(), err error) {
	if d.Of(string(p)) != nil {
		return nil, errors.New("refused")
	}
	return nil, nil
}

func (picky) Unknown(*config.Document) []string { return nil }

// keeping is a configuration that has the document applied last.
type keeping struct {
	picky
	has *config.Document
}

func (k *keeping) Apply(d *config.Document) (report func(), err error) {
	if _, err = k.picky.Apply(d); err == nil {
		k.has = d
	}
	return nil, err
}

// TestLastGoodDocumentHoldsOverAReload has a document come into force, and one that is rejected
// follow, after a new configuration was built with the document before them.
func TestLastGoodDocumentHoldsOverAReload(t *testing.T) {
	storage := &certmagic.FileStorage{Path: testdir.New(t)}
	f := New(still{}, storage, zap.NewNop(), func() {})
	f.target = picky("bad")
	f.Document([]byte(`{"zones": {"first": {}}}`))
	next := &keeping{picky: "bad", has: f.Good()}
	f.Document([]byte(`{"zones": {"second": {}}}`))
	f.Document([]byte(`{"zones": {"bad": {}}}`))
	f.start.Do(func() {}) // the source is not read
	f.Lead(next, storage, zap.NewNop())
	if next.has.Of("second") == nil || f.Status().State != StateRejected {
		t.Errorf("%v in force, source %s, want the document before the one that is rejected", next.has.Zones, f.Status().State)
	}
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
}

// TestRemovedDocumentIsNotApplied checks that a document that was rejected and then removed does
// not come into force with a configuration that it would fit.
func TestRemovedDocumentIsNotApplied(t *testing.T) {
	storage := &certmagic.FileStorage{Path: testdir.New(t)}
	f := New(still{}, storage, zap.NewNop(), func() {})
	f.target = picky("late")
	f.Document([]byte(`{"zones": {"early": {}}}`))
	f.Document([]byte(`{"zones": {"late": {}}}`))
	f.Failed(rules.ErrEmpty)
	f.start.Do(func() {}) // the source is not read
	f.Lead(picky("other"), storage, zap.NewNop())
	if d := f.Good(); d.Of("late") != nil || d.Of("early") == nil {
		t.Errorf("in force: %s", f.Text())
	}
	if st := f.Status(); st.State != StateAway || st.Err == nil {
		t.Errorf("%s, %v, want that the source has lost its document", st.State, st.Err)
	}
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
}
