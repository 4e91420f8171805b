package limiter

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/rules"
	"github.com/dianalimiter/diana/stores"
)

// adopting is a shared store that counts in this process.
type adopting struct {
	memory.Store
	adopted []*stores.Counter
}

func (*adopting) Hold()                                                              {}
func (s *adopting) At(stores.Key) stores.Store                                       { return s }
func (*adopting) Status() stores.Status                                              { return stores.Status{} }
func (*adopting) Release()                                                           {}
func (*adopting) Reset(context.Context, string, []*stores.Counter, stores.Key) error { return nil }

func (*adopting) Share(c *stores.Counter) stores.Enforced {
	return stores.Enforced{Rules: c.Rules}
}

func (s *adopting) Adopt(c *stores.Counter)                { s.adopted = append(s.adopted, c) }
func (*adopting) ResetLocal([]*stores.Counter, stores.Key) {}

// TestRulesInForceAreAdopted checks which counters a shared store is told of: one of each table, of
// which the others are known, when rules come into force, and no others.
func TestRulesInForceAreAdopted(t *testing.T) {
	hour := config.Window{Duration: time.Hour}
	s := &adopting{Store: memory.Store{Clock: clock.Now}}
	l := newTestLimiter(t, s, &config.Zone{
		Name: "z", Rules: []*config.Rule{{Limit: 10, Window: hour}},
		Overrides: []*config.Override{
			{Key: config.Parts{"vip"}, Rules: []*config.Rule{{Limit: 50, Window: hour}}},
			{Key: config.Parts{"bad"}, Rules: []*config.Rule{{Limit: 5, Window: hour, Block: config.Block{caddy.Duration(time.Hour)}}}},
		},
	}, &config.Zone{
		Name: "varying", Rules: []*config.Rule{{Limit: 10, Window: hour, LimitFrom: "{http.request.header.X-Limit}"}},
	})
	check := func(what string, tables int) {
		t.Helper()
		if len(s.adopted) != tables {
			t.Fatalf("%s: %d counters are adopted, want %d", what, len(s.adopted), tables)
		}
		for _, c := range s.adopted {
			own := c.Overrides[0]
			switch {
			case c.Zone == "varying" && (len(c.Overrides) != 0 || !c.Varies()):
				t.Errorf("%s: a counter that varies has %d others", what, len(c.Overrides))
			case c.Zone == "z" && (len(c.Overrides) != 3 || own == nil || own.Rules[0].Limit() != 10 || c.Blocked == nil):
				t.Errorf("%s: %d counters, the zone's own is %+v, blocked %v", what, len(c.Overrides), own, c.Blocked)
			}
		}
		s.adopted = nil
	}
	check("at first", 2)
	d, err := rules.Parse([]byte(`{"zones": {"z": {"shadow": true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newChange(l.zones, d)
	if err != nil {
		t.Fatal(err)
	}
	check("a document that is validated", 0)
	if err := c.undo(); err != nil {
		t.Fatal(err)
	}
	if c, err = newChange(l.zones, d); err != nil {
		t.Fatal(err)
	}
	if err := c.commit(); err != nil {
		t.Fatal(err)
	}
	check("a document in force", 1)
}

// TestExceptionBesideAnOverride has an override and an exception of one key. A debt or a snapshot of
// the key tells under which of them it was.
func TestExceptionBesideAnOverride(t *testing.T) {
	hour := config.Window{Duration: time.Hour}
	s := &adopting{Store: memory.Store{Clock: clock.Now}}
	l := newTestLimiter(t, s, &config.Zone{
		Name: "z", Rules: []*config.Rule{{Limit: 10, Window: hour}},
		Overrides: []*config.Override{{Key: config.Parts{"vip"}, Rules: []*config.Rule{{Limit: 50, Window: hour}}}},
	})
	d, err := rules.Parse([]byte(`{"zones": {"z": {"exceptions": [{"key": ["vip"], "rules": [{"limit": 7, "window": "1h"}]}]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.apply(d); err != nil {
		t.Fatal(err)
	}
	limits := make(map[int64]bool)
	for _, c := range s.adopted[len(s.adopted)-1].Overrides {
		limits[c.Rules[0].Limit()] = true
	}
	if !maps.Equal(limits, map[int64]bool{10: true, 50: true, 7: true}) {
		t.Errorf("counters with the limits %v, want 10, 50 and 7", limits)
	}
}
