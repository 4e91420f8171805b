package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// twoInstances returns two instances on one virtual clock and one Redis.
func twoInstances(t *testing.T) (one, two *virtualStore) {
	t.Helper()
	srv := redistest.Start(t)
	one, two = &virtualStore{v: &virtual{client: srv.Client()}}, &virtualStore{v: &virtual{client: srv.Client()}}
	one.Store, two.Store = newVirtualShared(t, srv, one.v), newVirtualShared(t, srv, two.v)
	return one, two
}

func inFlightCounter(t testing.TB, name string, permits int64) *stores.Counter {
	t.Helper()
	return kit.NewTestCounter(t, name, permits, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 1_000_000, Window: storekit.Hour, Cost: 1}})
}

// TestPermitsOutliveOutage holds all permits of a key while Redis is away for longer
// than a permit lasts. The first renewal afterwards puts them back.
func TestPermitsOutliveOutage(t *testing.T) {
	one, two := twoInstances(t)
	c := inFlightCounter(t, "outage", 5)
	for range 5 {
		if !one.at(0, c, 1).Charged {
			t.Fatal("a request was denied")
		}
	}
	for i, at := range []float64{33, 66} {
		one.set(at)
		one.renewPermits()
		if two.at(at+0.001, c, 1).Charged || one.at(at+0.002, c, 1).Charged {
			t.Errorf("after outage %d: a sixth request of 5 was admitted", i+1)
		}
	}
}

// TestDenialPutsPermitsBack makes Redis lose its memory. The first check of the instance
// that holds all permits is denied, and puts them back.
func TestDenialPutsPermitsBack(t *testing.T) {
	one, two := twoInstances(t)
	c := inFlightCounter(t, "loss", 2)
	one.at(0, c, 1)
	one.at(0, c, 1)
	one.v.flush(t)
	if one.at(1, c, 1).Charged || two.at(1.1, c, 1).Charged {
		t.Error("a third request of 2 was admitted")
	}
}

// TestManyPermits takes and renews many permits of one key. What Redis keeps of them and
// has to read does not grow with their number.
func TestManyPermits(t *testing.T) {
	srv := redistest.Start(t)
	s := newTestShared(t, srv, func() int64 { return storekit.Hour })
	c := inFlightCounter(t, "many", 5000)
	for range 3000 {
		check := storekit.CheckOf(1, c)
		if s.Decide(context.Background(), check); !check.Admitted || check.Mode != stores.ModeShared {
			t.Fatal(check.Mode)
		}
	}
	s.losePermits()
	s.renewPermits()
	name := namesOf("diana", &storekit.CheckOf(1, c).Zones[0])[1]
	if n, size := permitsIn(t, srv.Client(), name), srv.Client().StrLen(context.Background(), name).Val(); n != 3000 || size != 24+88 {
		t.Errorf("%d permits in %d bytes, want 3000 in 112", n, size)
	}
}

// TestRenewalGoesOn renews the permits of many keys, of which one cannot be renewed.
// The others are.
func TestRenewalGoesOn(t *testing.T) {
	srv := redistest.Start(t)
	s, client := newTestShared(t, srv, func() int64 { return storekit.Hour }), srv.Client()
	s.Observe(silent{})
	c := inFlightCounter(t, "keys", 1)
	var names []string
	for k := range uint64(50) {
		check := storekit.CheckOfKey(c, k)
		s.Decide(context.Background(), check)
		names = append(names, namesOf("diana", &check.Zones[0])[1])
	}
	client.Del(context.Background(), names[7])
	client.RPush(context.Background(), names[7], "a list")
	for _, n := range names {
		client.PExpire(context.Background(), n, 20*time.Second)
	}
	s.losePermits()
	s.renewPermits()
	for i, n := range names {
		if ttl := client.PTTL(context.Background(), n).Val(); i != 7 && ttl < 25*time.Second {
			t.Errorf("key %d lives for %v after the renewal", i, ttl)
		}
	}
}

// TestFallbackSharesPermits counts alone by this instance's share of the permits, what
// it holds through Redis included.
func TestFallbackSharesPermits(t *testing.T) {
	s := newVirtualStore(t)
	s.Observe(silent{})
	s.setInstances(2)
	for _, held := range []int64{0, 1, 2, 3} {
		c := inFlightCounter(t, fmt.Sprint("share", held), 4)
		for range held {
			s.at(0, c, 1)
		}
		admitted := int64(0)
		for range 5 {
			check := storekit.CheckOfKey(c, 1)
			if s.fallback.Decide(check, nil); check.Admitted {
				admitted++
			}
		}
		if want := max(0, 2-held); admitted != want {
			t.Errorf("with %d held through Redis, %d admitted alone, want %d: the share is 2 of 4", held, admitted, want)
		}
	}
}

// TestPlainChecksSeeWhatIsHeld checks a zone by two handlers, of which one holds the cost until the
// response. What it holds counts for the other, which holds nothing.
func TestPlainChecksSeeWhatIsHeld(t *testing.T) {
	srv, ctx := redistest.Start(t), context.Background()
	for name, spec := range eachAlgorithm() { // 12 a minute
		s := newTestShared(t, srv, func() int64 { return storekit.Hour })
		holding := kit.NewTestCounter(t, name, 0, true, nil, spec)
		plain := kit.NewTestCounter(t, name, 0, false, holding.Table, spec)
		decide := func(c *stores.Counter, cost int64) *stores.Check {
			check := storekit.CheckOf(cost, c)
			check.Zones[0].SeesHeld = true
			if s.Decide(ctx, check); check.Mode != stores.ModeShared {
				t.Fatalf("%s: mode %v", name, check.Mode)
			}
			return check
		}
		held := decide(holding, 8)
		if check := decide(plain, 5); !held.Admitted || check.Admitted || !check.Zones[0].Results[0].Held {
			t.Errorf("%s: %+v is admitted beside 8 of 12 that are held", name, check.Zones[0].Results)
		}
		check := decide(plain, 4)
		if left := check.Zones[0].Results[0].Remaining; !check.Admitted || left != 0 {
			t.Errorf("%s: admitted %v with %d left, want the last 4", name, check.Admitted, left)
		}
		s.Finish(ctx, &held.Zones[0], 2)
		if check = decide(plain, 7); check.Admitted {
			t.Errorf("%s: 7 of 6 that are left are admitted", name)
		}
		if check = decide(plain, 6); !check.Admitted {
			t.Errorf("%s: 6 of 6 that are left are denied: %+v", name, check.Zones[0].Results)
		}
	}
}

// TestPlainChecksSeeWhatIsHeldWithoutRedis checks such a zone while Redis is away: what it admitted
// before is still held.
func TestPlainChecksSeeWhatIsHeldWithoutRedis(t *testing.T) {
	srv, ctx, k := redistest.Start(t), context.Background(), stores.Key{Hi: 1, Lo: 2}
	for name, spec := range eachAlgorithm() { // 12 a minute
		f := newFleet(t, srv, 1)
		spec.Spec.Overdraws = true
		holding := kit.NewTestCounter(t, name, 0, true, nil, spec)
		plain := kit.NewTestCounter(t, name, 0, false, holding.Table, spec)
		held := f.decide(0, holding, k, 8)
		f.set(0, faultOOM)
		for _, cost := range []int64{5, 4} {
			check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: plain, Subject: stores.Subject{Key: k, Tag: k}, Cost: cost, Holding: stores.Holding{SeesHeld: true}}}}
			if f.all[0].Decide(ctx, check); check.Mode != stores.ModeFallback || check.Admitted != (cost == 4) {
				t.Errorf("%s: mode %v, %d admitted beside 8 of 12 that are held: %v", name, check.Mode, cost, check.Admitted)
			}
		}
		f.all[0].Finish(ctx, &held.Zones[0], 0)
	}
}

// TestPlainChecksSeeWhatIsHeldAfterAMove decides such a zone while its slot is moved, with the first
// of its keys alone. The same request, which waits, asks again: what is held counts for it.
func TestPlainChecksSeeWhatIsHeldAfterAMove(t *testing.T) {
	srv, k := redistest.Start(t), stores.Key{Hi: 1, Lo: 2}
	for name, spec := range eachAlgorithm() { // 12 a minute
		f := newFleet(t, srv, 1)
		holding := kit.NewTestCounter(t, name, 0, true, nil, spec)
		plain := kit.NewTestCounter(t, name, 0, false, holding.Table, spec)
		f.decide(0, plain, k, 5)
		f.decide(0, holding, k, 7)
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: plain, Subject: stores.Subject{Key: k, Tag: k}, Cost: 8, Holding: stores.Holding{SeesHeld: true}}}}
		for _, moves := range []bool{true, false} {
			if f.set(0, noFault); moves {
				f.set(0, faultMoving)
			}
			f.v.now++
			f.all[0].setTime(f.v.now)
			f.all[0].Decide(context.Background(), check)
			if held := check.Zones[0].Held; check.Mode != stores.ModeShared || (held == 7) == moves {
				t.Errorf("%s: slot moved %v: mode %v, %d held, want 7 once it is not", name, moves, check.Mode, held)
			}
		}
	}
}
