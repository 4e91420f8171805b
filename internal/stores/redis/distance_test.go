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

// TestCallsHaveConnections has few connections open of a pool that may have more. No more calls are in flight than
// find one, and another is left for what requests do not wait for.
func TestCallsHaveConnections(t *testing.T) {
	n := newNodes(&ConnOptions{Timeout: time.Second}, func() int64 { return 0 }, func(*node, bool, error) {}).first
	n.distance.add(12 * time.Millisecond)
	n.distance.turn()
	for open, want := range map[int64]int{0: callsInFlight, 3: callsInFlight, 4: 3, 8: 7, 9: 8, 20: 8} {
		n.tracker.ready.Store(open)
		if _, most := n.batcherOf(new(call), 40); most != want {
			t.Errorf("%d connections are open: %d calls in flight, want %d", open, most, want)
		}
	}
}
