package records_test

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/records"
)

const hour = 3_600_000_000

// blocking returns a counter of one an hour, whose denials block for an hour, and for two the next time.
func blocking(t *testing.T) *stores.Counter {
	t.Helper()
	r, err := new(algorithms.FixedWindow).Compile(algorithms.Spec{Limit: 1, Window: hour, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &stores.Counter{Terms: stores.Terms{Zone: "z", Blocks: []int64{hour}, Grows: [][]int64{{2 * hour}}}, Rules: []algorithms.Rule{r}, Split: func(int64) []algorithms.Rule { return []algorithms.Rule{r} }}
}

// decide decides a check by a record, and returns its zone.
func decide(c *stores.Counter, r *records.Record, now int64) *stores.ZoneCheck {
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Cost: 1}}}
	records.Decide(check, []*records.Record{r}, now, "a")
	return &check.Zones[0]
}

// TestBlockAfterAClockStep sets the clock back while a key is blocked. No block lasts longer than its span.
func TestBlockAfterAClockStep(t *testing.T) {
	c, r, now := blocking(t), new(records.Record), int64(100*hour)
	decide(c, r, now)
	if z := decide(c, r, now); !z.Block.Started {
		t.Fatalf("%+v, want a block", z.Block)
	}
	now -= 10 * hour
	if z := decide(c, r, now); !z.Blocked() || z.Block.Until != now+z.Block.Span {
		t.Errorf("after the clock was set back: %+v, want it blocked for its span", z.Block)
	}
	if z := decide(c, r, now+2*hour); z.Blocked() {
		t.Errorf("after its span: %+v, want no block", z.Block)
	}
}

// TestLastBlockIsKeptForADay denies after a block has ended: to the microsecond a day later, it still makes
// the next one longer, and Drop keeps its record.
func TestLastBlockIsKeptForADay(t *testing.T) {
	alive := func(string) bool { return true }
	for late, want := range map[int64]int32{0: 1, 1: 0} {
		c, r, now := blocking(t), new(records.Record), int64(100*hour)
		decide(c, r, now)
		at := decide(c, r, now).Block.Until + stores.GrowsWithin + late
		if until := r.Drop(at, alive); (until > at) != (want > 0) {
			t.Errorf("%d us after the day: unused at %d us after that", late, until-at)
		}
		if z := decide(c, r, at); z.Block.Step != want {
			t.Errorf("%d us after the day: step %d, want %d", late, z.Block.Step, want)
		}
	}
}
