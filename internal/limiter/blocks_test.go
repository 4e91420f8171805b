package limiter

import (
	"testing"
	"time"

	"github.com/dianalimiter/diana/config"
	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/rules"
)

// TestBlocksEndWithTheLastRuleThatBlocks changes the rules of a zone by documents. Its blocks stay while
// any rule blocks, also if a document that has none is only validated, and end with the last such rule.
func TestBlocksEndWithTheLastRuleThatBlocks(t *testing.T) {
	l := newTestLimiter(t, &adopting{Store: memory.Store{Clock: clock.Now}}, &config.Zone{
		Name: "ending", Rules: []*config.Rule{{Limit: 10, Window: config.Window{Duration: time.Hour}}},
	})
	change := func(document string, keep bool) *memory.Blocks {
		t.Helper()
		d, err := rules.Parse([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		c, err := newChange(l.zones, d)
		if err != nil {
			t.Fatal(err)
		}
		end := c.undo
		if keep {
			end = c.commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		return l.zones[0].active.Load().blocks
	}
	const (
		blocks = `{"zones": {"ending": {"rules": [{"limit": 5, "window": "1h", "block": "1h"}]}}}`
		longer = `{"zones": {"ending": {"rules": [{"limit": 7, "window": "1m", "algorithm": {"name": "gcra"}, "block": "2h"}]}}}`
		none   = `{"zones": {"ending": {"rules": [{"limit": 5, "window": "1h"}]}}}`
	)
	first := change(blocks, true)
	if first == nil || first.Ended != 0 {
		t.Fatalf("the first rule that blocks: %+v", first)
	}
	change(none, false)
	if b := change(longer, true); b != first {
		t.Error("blocks did not survive a change of rules")
	}
	before := clock.Now()
	if b := change(none, true); b != nil {
		t.Error("a zone without a rule that blocks has blocks")
	}
	if b := change(blocks, true); b == nil || b == first || b.Ended < before || b.Ended > clock.Now() {
		t.Errorf("blocks of a rule that came back: %+v, want them to have ended after %d", b, before)
	}
}
