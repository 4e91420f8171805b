package limiter

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/rules"
)

// TestExceptionsAfterAClockStep sets the clock ahead and back: what seemed to have ended meanwhile
// applies again.
func TestExceptionsAfterAClockStep(t *testing.T) {
	l := newTestLimiter(t, nil, &config.Zone{Name: "z", Rules: []*config.Rule{{Limit: 1000, Window: config.Window{Duration: time.Hour}}}})
	now := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	l.env.Wall = func(int64) int64 { return now.UnixMicro() }
	r := NewRegistry(zap.NewNop(), nil)
	if err := r.Join(l); err != nil {
		t.Fatal(err)
	}
	d, err := rules.Parse([]byte(`{"zones": {"z": {"exceptions": [{"key": ["a"], "rules": [{"limit": 0, "window": "1s"}], "until": "2026-01-01T01:00:00Z"}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Apply(d); err != nil {
		t.Fatal(err)
	}
	next := takes(0)
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{0, 429}, {2 * time.Hour, 200}, {time.Minute, 429}, {time.Hour, 200}} {
		now = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).Add(c.after)
		if status := ask(t.Context(), l, "a", next); status != c.want {
			t.Errorf("after %v: status %d, want %d", c.after, status, c.want)
		}
	}
}
