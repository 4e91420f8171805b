package redis

import (
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// TestOverflowIsOfTheLastCharge has a request decided without Redis whose key has no room, and charged after its
// response, when Redis is back. That charge is made without Redis, too, whatever it may be called now: it overflows if
// there is still no room, and each charge is reported once.
func TestOverflowIsOfTheLastCharge(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range eachAlgorithm() {
		for _, room := range []int64{1, 10} {
			s := newSettling(t, srv, 1, fmt.Sprint(name, room), spec, stores.FailLocal)
			lost, c := new(uncharged), s.counters[0]
			s.all[0].Observe(lost)
			c.Table = memory.NewTable(c.Rules, 1)
			s.set(0, faultOOM)
			s.decide(0, c, stores.Key{Hi: 3, Lo: 4}, 1)
			check := s.decide(0, c, s.key, 1)
			z := &check.Zones[0]
			if !z.Overflowed || !z.Charged || lost.cost != 1 {
				t.Fatalf("%s: overflowed %v, charged %v, %d reported, want 1", name, z.Overflowed, z.Charged, lost.cost)
			}
			s.recover()
			memory.TableOf(c).SetMax(room, 0)
			if s.settle(z, 3); z.Overflowed != (room == 1) || lost.cost != 4 {
				t.Errorf("%s, room for %d: overflowed %v, %d reported, want 4", name, room, z.Overflowed, lost.cost)
			}
			if n := s.drain(0, c, s.key); n != 12 {
				t.Errorf("%s, room for %d: Redis admits %d of 12", name, room, n)
			}
		}
	}
}
