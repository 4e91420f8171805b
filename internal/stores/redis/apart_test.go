package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestDebtFailsAlone hands over the debts of several keys in one call, in the background or
// with a check of them all, while the value of one key, the first or a later one, is another
// program's. The others are charged once, and that one when its value is gone.
func TestDebtFailsAlone(t *testing.T) {
	srv, ctx := redistest.Start(t), context.Background()
	for _, wrong := range []uint64{0, 1, 2} {
		for _, by := range []string{"background", "check"} {
			f := newFleet(t, srv, 2)
			f.v.now += storekit.Hour / 2
			f.v.flush(t)
			c, s := f.counters(t, by, lostSpecs()["fixed_window"])[0], f.all[0]
			check := &stores.Check{Zones: make([]stores.ZoneCheck, 3)}
			for k := range check.Zones {
				check.Zones[k] = stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: uint64(k), Lo: 1}, Tag: stores.Key{Hi: uint64(k), Lo: 1}}, Cost: 1}
			}
			f.set(-1, faultRefused)
			for k := range check.Zones {
				f.decide(0, c, check.Zones[k].Key, 5)
			}
			f.set(-1, noFault)
			f.v.now += 2 * rampLasts
			handOver := func() {
				for _, s := range f.all {
					s.setTime(f.v.now)
				}
				if by == "check" {
					s.Decide(ctx, check)
				} else {
					s.payDebts(ctx)
				}
			}
			name := namesOf("diana", &check.Zones[wrong])[0]
			f.v.client.RPush(ctx, name, "other")
			for range 3 {
				handOver()
			}
			f.v.client.Del(ctx, name)
			handOver()
			want := int64(95)
			if by == "check" {
				want -= 4 // three checks that this process has decided, and one that Redis has
			}
			for k := range check.Zones {
				peek := &stores.Check{Peek: true, Zones: []stores.ZoneCheck{{Counter: c, Subject: check.Zones[k].Subject, Cost: 1}}}
				f.all[1].Decide(ctx, peek)
				if got := peek.Zones[0].Results[0].Remaining; got != want {
					t.Errorf("%s, key %d of another type: key %d has %d remaining, want %d", by, wrong, k, got, want)
				}
			}
		}
	}
}

// TestDebtsOutliveTheirContext hands over debts when the store has ended: it ends at once, but for
// a call under way, and the rest is charged by who comes after.
func TestDebtsOutliveTheirContext(t *testing.T) {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 2)
	f.v.now += storekit.Hour / 2
	c, s := f.counters(t, "ended", lostSpecs()["fixed_window"])[0], f.all[0]
	var check stores.Check
	for i := range uint64(50) {
		k := stores.Key{Hi: i, Lo: 1}
		check.Zones = append(check.Zones, stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k, Tag: k}})
	}
	f.set(-1, faultRefused)
	for i := range check.Zones {
		f.decide(0, c, check.Zones[i].Key, 5)
	}
	f.set(-1, noFault)
	f.v.now += 2 * rampLasts
	s.setTime(f.v.now)
	ended, end := context.WithCancel(context.Background())
	end()
	s.payDebts(ended)
	left := func(want int64) {
		t.Helper()
		for _, z := range check.Zones {
			peek := &stores.Check{Peek: true, Zones: []stores.ZoneCheck{{Counter: c, Subject: z.Subject, Cost: 1}}}
			f.all[1].Decide(context.Background(), peek)
			if got := peek.Zones[0].Results[0].Remaining; got != want {
				t.Fatalf("key %d has %d remaining, want %d", z.Key.Hi, got, want)
			}
		}
	}
	left(100)
	check.Zones = check.Zones[:20]
	s.fallback.Look(&check, f.v.now)
	begun := s.fallback.Hands.TakeAll(&check, s.outages.Now(stores.Key{}))
	_, err := s.outages.HandOver(ended, begun)
	if s.fallback.Hands.EndCall(begun, err); err != nil {
		t.Fatal(err)
	}
	check.Zones = check.Zones[:50]
	s.payDebts(context.Background())
	left(95)
}
