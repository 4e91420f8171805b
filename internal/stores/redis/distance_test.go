package redis

import (
	"testing"
	"time"
)

// TestCallsOverlap measures ways to a node: over the longer, more calls are in flight, so that requests do not
// wait for a whole round trip of others, as many as connections allow.
func TestCallsOverlap(t *testing.T) {
	var d distance
	want := func(what string, connections, inFlight int, far bool) {
		t.Helper()
		if got := d.inFlight(connections / 2); got != inFlight {
			t.Errorf("%s, %d connections: %d calls in flight, want %d", what, connections, got, inFlight)
		}
		if d.far() != far {
			t.Errorf("%s: far %v, want %v", what, !far, far)
		}
	}
	want("not known yet", 40, callsInFlight, true)
	d.add(12 * time.Millisecond)
	want("after the first call", 40, callsInFlight, true)
	for _, test := range []struct {
		way                   time.Duration
		connections, inFlight int
		far                   bool
	}{
		{12 * time.Millisecond, 40, 8, true},
		{12 * time.Millisecond, 10, 5, true},
		{20 * time.Millisecond, 40, 13, true},
		{100 * time.Millisecond, 40, mostInFlight, true},
		{100 * time.Millisecond, 2, callsInFlight, true},
		{2 * time.Millisecond, 40, callsInFlight, true},
		{farAway, 40, callsInFlight, true},
		{farAway - 1, 40, callsInFlight, false},
	} {
		for range 2 { // a way that is longer shows at the end of a period
			d.add(test.way + time.Millisecond) // busy
			d.add(test.way)
			d.turn()
		}
		want(test.way.String(), test.connections, test.inFlight, test.far)
	}
	d.turn()
	want("nothing was called", 40, callsInFlight, false)
}
