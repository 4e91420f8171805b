package redis

import (
	"testing"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// TestEndedBlocks has the rules of a zone block no more, and again: what Redis has from before is not
// in force, and what was started since by another instance is.
func TestEndedBlocks(t *testing.T) {
	srv := redistest.Start(t)
	f, c := blockFleet(t, srv, "ended", 2)
	k := stores.Key{Hi: 1, Lo: 2}
	f.drain(0, c[0], k)
	f.v.now += 10_000_000
	again := memory.NewBlocks(1000) // as the limiter makes them
	again.Ended = f.v.now
	c[0].Blocked = again
	f.all[0].forgetSaid()
	f.v.now += 1_000_000
	if check := f.decide(0, c[0], k, 1); !check.Admitted || check.Mode != stores.ModeShared {
		t.Fatalf("admitted %v in mode %v, %+v", check.Admitted, check.Mode, check.Zones[0].Block)
	}
	f.drain(0, c[0], k)
	since := f.v.now
	f.v.now += 5_000_000
	for i := range c {
		f.wantBlock(t, "started since", i, c[i], k, since, stores.ModeShared)
	}
}
