package admin

import (
	"testing"
	"time"

	"github.com/dianalimiter/diana/stores"
)

// TestRememberedInstances has many instances come and go: those that count are kept with their zones, and of the others so
// many as are remembered, without.
func TestRememberedInstances(t *testing.T) {
	all := make(map[uint64]stores.Figures)
	for id := range uint64(1500) {
		age := time.Second
		if id >= 400 {
			age = freshFor + time.Second
		}
		all[id] = stores.Figures{Age: age, Text: []byte(`{"zones":[{"zone":"z"}]}`)}
	}
	var l lookout
	l.remember(all)
	if n := len(l.seen); n != rememberAll {
		t.Errorf("%d instances are remembered, want %d", n, rememberAll)
	}
	for id, m := range l.seen {
		if fresh := id < 400; (len(m.Zones) == 1) != fresh {
			t.Errorf("instance %d has %d zones", id, len(m.Zones))
		}
	}
	for id := range uint64(400) {
		if _, ok := l.seen[id]; !ok {
			t.Errorf("instance %d, which counts, is forgotten", id)
		}
	}
}
