package simulation

import (
	"testing"
	"time"
)

// TestEvictedCharge checks when a charge must be in Redis although the key was evicted: once the
// instance that knows of it has asked for the key twice, for no other has to notice.
func TestEvictedCharge(t *testing.T) {
	at := func(process string, start time.Duration) *request {
		return &request{process: process, cost: 1, admitted: true, start: start, decided: start + time.Millisecond, answered: start + time.Millisecond, end: start + time.Millisecond}
	}
	charged := at("a", 10*time.Second)
	for name, c := range map[string]struct {
		loss  string
		later []*request
		least int64
	}{
		"flush":                   {loss: "flush", least: 1},
		"not asked for again":     {loss: "evict", least: 0},
		"asked for by another":    {loss: "evict", later: []*request{at("b", 50*time.Second), at("b", 51*time.Second)}, least: 2},
		"asked for once":          {loss: "evict", later: []*request{at("a", 50*time.Second)}, least: 1},
		"asked for twice":         {loss: "evict", later: []*request{at("a", 50*time.Second), at("a", 51*time.Second)}, least: 3},
		"asked for twice at once": {loss: "evict", later: []*request{at("a", 50*time.Second), at("a", 50*time.Second)}, least: 2},
	} {
		o := &oracle{w: &world{plan: &Plan{setup: &setup{way: way{timeout: 25 * time.Millisecond}}}}, spans: []*span{{what: c.loss, from: 30 * time.Second, to: 30 * time.Second, loses: true, site: -1}}}
		if least, _ := o.charged(&site{Kind: ledger}, append([]*request{charged}, c.later...)); least != c.least {
			t.Errorf("%s: Redis must have been charged %d, want %d", name, least, c.least)
		}
	}
}
