package clock

import (
	"testing"
	"time"
)

// TestWall puts the system's clock forward and back, as seen from a process that has started
// before: Wall follows it, and Now does not.
func TestWall(t *testing.T) {
	began := startedAt
	defer func() {
		startedAt = began
		wall.seen.Store(0)
	}()
	for _, set := range []time.Duration{0, time.Hour, -time.Hour, 3 * time.Second} {
		startedAt = began - set.Microseconds()
		wall.seen.Store(0) // as after a tenth of a second
		now := Now()
		if d := Wall(now) - now; d != set.Microseconds() {
			t.Errorf("set by %v: %d us ahead", set, d)
		}
	}
}
