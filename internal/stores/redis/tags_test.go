package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestDuplicatesAreHandedOver admits requests at one instance, as prevent_duplicates does.
// Another one denies their duplicates, also if Redis was away or has lost its memory, though
// the first one does not see them again.
func TestDuplicatesAreHandedOver(t *testing.T) {
	srv := redistest.Start(t)
	spec := storekit.RuleSpec{Alg: new(algorithms.FixedWindow), Spec: algorithms.Spec{Limit: 1, Window: storekit.Hour, Cost: 1}}
	for _, fault := range []string{"an outage", "a loss"} {
		f := newFleet(t, srv, 2)
		f.v.flush(t)
		c := f.counters(t, "z", spec)
		for i, c := range c {
			c.OwnSlots = true
			storekit.Adopt(t, f.all[i], c)
			memory.TableOf(c).KeepTags()
		}
		decide := func(i int, n uint64) bool {
			check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c[i], Subject: stores.Subject{Key: stores.Key{Hi: 9, Lo: n}, Tag: stores.Key{Hi: n % 3, Lo: 1}}, Cost: 1}}}
			f.all[i].setTime(f.v.now)
			f.all[i].Decide(context.Background(), check)
			return check.Admitted
		}
		if fault == "an outage" {
			f.set(0, faultRefused)
		}
		for n := range uint64(20) {
			if !decide(0, n) {
				t.Fatalf("%s: request %d is denied", fault, n)
			}
		}
		if fault == "a loss" {
			f.v.flush(t)
			f.all[0].loseMemory()
		}
		f.set(0, noFault)
		f.v.now += 2 * rampLasts
		f.all[0].setTime(f.v.now)
		f.all[0].payDebts(context.Background())
		admitted := 0
		for n := range uint64(20) {
			if decide(1, n) {
				admitted++
			}
		}
		if admitted > 0 {
			t.Errorf("after %s: %d of 20 duplicates are admitted", fault, admitted)
		}
	}
}
