package limiter

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/follow"
	"github.com/dianalimiter/diana/internal/testkit/testdir"
)

// constant is a source with a document that does not change.
type constant string

func (constant) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.rate_limit.rule_sources.constant"}
}
func (constant) Identity() string                                    { return "constant" }
func (constant) Every() time.Duration                                { return time.Hour }
func (c constant) Fetch(context.Context) ([]byte, error)             { return []byte(c), nil }
func (constant) Notify(ctx context.Context, _ func(), _ func(error)) { <-ctx.Done() }

// TestChangedRulesAreReportedWithoutLocks applies a document that resets the counts of a zone.
// Log lines and the callback are code of others, which may ask for the state of the source
// and of the zones.
func TestChangedRulesAreReportedWithoutLocks(t *testing.T) {
	var f *follow.Follower
	var r *Registry
	asked := func() bool {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Status()
			r.Zones()
		}()
		select {
		case <-done:
			return true
		case <-time.After(5 * time.Second):
			return false
		}
	}
	core, lines := observer.New(zapcore.InfoLevel)
	logger := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if !asked() {
			t.Errorf("a lock is held while a line is logged: %s", e.Message)
		}
		return nil
	}))
	r = NewRegistry(logger, nil)
	changed := make(chan []string, 1)
	r.Changed = func(zones []string) {
		if !asked() {
			t.Error("a lock is held while a change is reported")
		}
		changed <- zones
	}
	l := newTestLimiter(t, nil, &config.Zone{Name: "z", Rules: []*config.Rule{{Limit: 10, Window: config.Window{Duration: time.Minute}}}})
	if err := r.Join(l); err != nil {
		t.Fatal(err)
	}
	storage := &certmagic.FileStorage{Path: testdir.New(t)}
	f = follow.New(constant(`{"zones": {"z": {"rules": [{"limit": 10, "window": "1h"}]}}}`), storage, logger, func() {})
	f.Lead(r, storage, logger)
	if zones := <-changed; !slices.Equal(zones, []string{"z"}) {
		t.Errorf("changed zones %v", zones)
	}
	if err := f.Destruct(); err != nil {
		t.Error(err)
	}
	if n := lines.FilterMessageSnippet("its counts are reset").Len(); n != 1 {
		t.Errorf("%d lines about counts that are reset, want 1:\n%v", n, lines.All())
	}
}
