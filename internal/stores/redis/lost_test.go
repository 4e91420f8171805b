package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// lostSpecs are rules with a limit of 100 in an hour.
func lostSpecs() map[string]storekit.RuleSpec {
	sp := algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}
	return map[string]storekit.RuleSpec{
		"gcra":           {Alg: &algorithms.GCRA{}, Spec: sp},
		"fixed_window":   {Alg: &algorithms.FixedWindow{}, Spec: sp},
		"aligned":        {Alg: &algorithms.FixedWindow{Align: true}, Spec: sp},
		"sliding_window": {Alg: &algorithms.SlidingWindow{}, Spec: sp},
		"sliding_log":    {Alg: &algorithms.SlidingLog{}, Spec: sp},
	}
}

// TestLostMemoryIsPutBack lets three instances take turns and makes Redis forget everything
// twice in one window, and once more with an outage. They admit hardly more than the limit.
func TestLostMemoryIsPutBack(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range lostSpecs() {
		for _, every := range []int{60, 140} { // before the limit is reached, and after
			for _, outage := range []bool{false, true} {
				f := newFleet(t, srv, 3)
				f.v.now += storekit.Hour / 2
				c := f.counters(t, fmt.Sprint(name, every, outage), spec)
				admitted := 0
				for n := range 400 {
					if n == every || n == 2*every {
						if outage {
							f.set(-1, faultRefused)
							for i := range f.all {
								f.decide(i, c[i], k, 200) // denied in any case
							}
							f.set(-1, noFault)
							f.v.now += 2 * rampLasts
						}
						f.v.flush(t)
					}
					f.v.now += 20_000
					if f.decide(n%3, c[n%3], k, 1).Admitted {
						admitted++
					}
				}
				if admitted > 110 || admitted < 99 {
					t.Errorf("%s, Redis forgets twice every %d requests, outage %v: %d admitted of 100", name, every, outage, admitted)
				}
			}
		}
	}
}

// TestResetIsNotUndone resets a key at one instance, of which the others have not heard.
// What they know of the key, and what they owe, is not put back.
func TestResetIsNotUndone(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range lostSpecs() {
		f := newFleet(t, srv, 3)
		f.v.now += storekit.Hour / 2
		c := f.counters(t, "reset-"+name, spec)
		for n := range 90 {
			f.decide(n%3, c[n%3], k, 1)
		}
		f.set(1, faultRefused)
		f.decide(1, c[1], k, 1) // owes
		f.set(1, noFault)
		f.v.now += 2 * rampLasts
		if err := f.all[0].Reset(context.Background(), c[0].Zone, c[:1], k); err != nil {
			t.Fatal(err)
		}
		z := &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}}
		ttl := f.v.client.PTTL(context.Background(), resetName("diana", z)).Val()
		if least := forgetsAfter(c[0]); ttl < least || ttl > least+resetMargin {
			t.Errorf("%s: the key is marked as reset for %v, want %v and the margin", name, ttl, least)
		}
		for n, i := range []int{1, 2, 0} {
			check := f.decide(i, c[i], k, 1)
			if left := check.Zones[0].Results[0].Remaining; check.Mode != stores.ModeShared || left != int64(99-n) {
				t.Errorf("%s: instance %d after a reset: %d left in mode %v, want %d", name, i, left, check.Mode, 99-n)
			}
		}
		for i := range f.all {
			f.v.now += 1000
			if check := f.decide(i, c[i], k, 1); takenForLess(check) {
				t.Errorf("%s: instance %d still wants to put back what it knew", name, i)
			}
		}
	}
}

// TestNothingIsRaisedWithoutALoss decides random checks of several instances, whose replies
// are lost at times. As Redis forgets nothing, it is handed over nothing but debts.
func TestNothingIsRaisedWithoutALoss(t *testing.T) {
	srv := redistest.Start(t)
	r, decided := storekit.Seeded(t), 0
	for trial := range storekit.Operations(t) / 200 {
		spec := storekit.RandomRule(r, true, false)
		f := newFleet(t, srv, 3)
		c := f.counters(t, fmt.Sprint("z", trial), spec)
		for range 200 {
			i := r.IntN(3)
			f.hooks[i].fault = noFault
			if r.IntN(10) == 0 {
				f.hooks[i].fault = faultReply
			}
			check := f.decide(i, c[i], stores.Key{Hi: 1 + r.Uint64N(2), Lo: 7}, 1+r.Int64N(2))
			f.set(i, noFault)
			f.v.now += r.Int64N(1 + spec.Spec.Window/8)
			if check.Mode == stores.ModeShared {
				decided++
				if takenForLess(check) {
					t.Fatalf("trial %d, %T %+v: instance %d takes what Redis says for less than it was", trial, spec.Alg, spec.Alg, i)
				}
			}
		}
	}
	if decided == 0 {
		t.Error("Redis has decided nothing")
	}
}

// takenForLess reports whether the instance whose check Redis has just decided has something to hand over:
// only a reply that is less than what it knows leaves something.
func takenForLess(check *stores.Check) bool {
	z := &check.Zones[0]
	_, due, _ := memory.TableOf(z.Counter).Snapshots().Look(z, check.Now)
	return due
}

// TestUncheckedKeysArePutBack notices a loss with the check of one key, or with a
// heartbeat. The other keys are put back without a check.
func TestUncheckedKeysArePutBack(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range lostSpecs() {
		for _, by := range []string{"check", "heartbeat"} {
			f := newFleet(t, srv, 1)
			f.v.now += storekit.Hour / 2
			c, s := f.counters(t, name+by, spec), f.all[0]
			lost := 0 // heartbeats that say so
			s.instances.lost = func(bool) {
				s.loseMemory()
				lost++
			}
			beat := func() {
				s.setTime(f.v.now)
				if err := s.heartbeat(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			beat()
			if s.payDebts(context.Background()); lost > 0 {
				t.Fatal("the first heartbeat is taken for a loss")
			}
			for k := range uint64(100) {
				f.decide(0, c[0], stores.Key{Hi: k, Lo: 1}, 7)
			}
			f.v.flush(t)
			if by == "check" {
				f.decide(0, c[0], stores.Key{Hi: 0, Lo: 1}, 1)
			} else {
				beat()
			}
			for range 10 { // on a busy machine one pass may not reach all
				s.setTime(f.v.now)
				s.payDebts(context.Background())
			}
			for k := uint64(1); k < 100; k++ {
				z := &stores.ZoneCheck{Counter: c[0], Subject: stores.Subject{Key: stores.Key{Hi: k, Lo: 1}, Tag: stores.Key{Hi: k, Lo: 1}}}
				if f.v.client.Exists(context.Background(), namesOf("diana", z)[0]).Val() == 0 {
					t.Fatalf("%s, by a %s: key %d was not put back", name, by, k)
				}
			}
		}
	}
}

// TestTwoLossesOfOneWindow lets Redis lose its memory in two outages. All that three instances
// admit alone in both is charged in the end, although each charges its own and the key is not
// checked in between.
func TestTwoLossesOfOneWindow(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range lostSpecs() {
		f := newFleet(t, srv, 3)
		f.v.now += storekit.Hour / 2
		c := f.counters(t, "two-"+name, spec)
		pay := func(lost bool) {
			for _, s := range f.all {
				s.setTime(f.v.now)
				if lost {
					s.loseKey()
				}
				s.payDebts(context.Background())
			}
		}
		alone := 0
		for range 2 {
			f.set(-1, faultRefused)
			for i := range f.all {
				for range 10 {
					if f.decide(i, c[i], k, 1).Admitted {
						alone++
					}
				}
			}
			f.v.flush(t)
			f.set(-1, noFault)
			pay(true)
			f.v.now += holdLasts
			pay(false)
			f.v.now += rampLasts
		}
		if left := f.decide(0, c[0], k, 1).Zones[0].Results[0].Remaining; left != int64(100-alone-1) {
			t.Errorf("%s: %d of 100 left after %d were admitted alone, and 1", name, left, alone)
		}
	}
}

// TestZonesBesideALostOneAreChargedOnce makes Redis forget the key of one of the zones of a
// check. The other zones, of which one is a shadow, are charged once by the next check.
func TestZonesBesideALostOneAreChargedOnce(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 1)
	f.v.now += storekit.Hour / 2
	for name, spec := range lostSpecs() {
		var zones []*stores.Counter
		for _, zone := range []string{"lost-", "kept-", "shadow-"} {
			zones = append(zones, f.counters(t, zone+name, spec)[0])
		}
		var check *stores.Check
		for n := range 2 {
			check = storekit.CheckOf(7, zones...)
			check.Shadows = 1
			if n == 1 {
				f.v.client.Del(t.Context(), namesOf("diana", &check.Zones[0])[0])
			}
			f.v.tick()
			f.all[0].Decide(t.Context(), check)
		}
		for i := range check.Zones {
			if left := check.Zones[i].Results[0].Remaining; left != 100-2*7 {
				t.Errorf("%s: %d of 100 left after two checks of 7", zones[i].Zone, left)
			}
		}
	}
}

// TestEachLossIsPutBack empties Redis twice, a moment after each other. What an instance knows
// of a key that it does not check again is put back each time.
func TestEachLossIsPutBack(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range lostSpecs() {
		f := newFleet(t, srv, 2)
		f.v.now += storekit.Hour / 2
		c := f.counters(t, "each-"+name, spec)
		f.decide(0, c[0], k, 1)
		for range 2 {
			f.decide(1, c[1], k, 10) // the first instance is not told of it
			f.v.flush(t)
			for _, s := range f.all {
				s.setTime(f.v.now)
				s.isForgotten()
				s.payDebts(t.Context())
			}
		}
		if left := f.decide(0, c[0], k, 1).Zones[0].Results[0].Remaining; left != 100-1-20-1 {
			t.Errorf("%s: %d of 100 left after 1, 20 and 1", name, left)
		}
	}
}

// TestKeysWithPermitsArePutBack makes Redis forget keys whose requests hold permits. What
// the instance knows of them is put back, and its debts are charged once.
func TestKeysWithPermitsArePutBack(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range lostSpecs() {
		f := newFleet(t, srv, 1)
		f.v.now += storekit.Hour / 2
		c := f.counters(t, "held-"+name, spec)
		c[0].InFlight = 5
		const keys = 10
		key := func(i uint64) stores.Key { return stores.Key{Hi: i, Lo: 1} }
		for i := range uint64(keys) {
			f.decide(0, c[0], key(i), 7)
		}
		f.set(-1, faultRefused)
		for i := range uint64(keys) {
			f.decide(0, c[0], key(i), 5)
		}
		f.set(-1, noFault)
		f.v.flush(t)
		f.v.now += 2 * rampLasts
		f.all[0].loseKey()
		for range 10 { // on a busy machine one pass may not reach all
			f.all[0].setTime(f.v.now)
			f.all[0].payDebts(context.Background())
		}
		for i := range uint64(keys) {
			if left := f.decide(0, c[0], key(i), 1).Zones[0].Results[0].Remaining; left != 100-7-5-1 {
				t.Errorf("%s: %d of 100 left of key %d after 7, a debt of 5, and 1", name, left, i)
			}
		}
	}
}

// TestLargeDebtOfALog charges a debt of many timestamps to a log that has many more. All of
// it is charged, in several calls.
func TestLargeDebtOfALog(t *testing.T) {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 1)
	f.v.now += storekit.Hour / 2
	c := f.counters(t, "large", storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 100_000, Window: storekit.Hour, Cost: 1}})
	k := stores.Key{Hi: 1, Lo: 2}
	for range 20 {
		f.v.now += 1000
		f.decide(0, c[0], k, 1000)
	}
	f.set(-1, faultRefused)
	for range 10 {
		f.v.now += 1000
		f.decide(0, c[0], k, 997)
	}
	f.set(-1, noFault)
	f.v.now += 2 * rampLasts
	for owes(c[0]) { // as each heartbeat does: one hands over for 200 ms of real time
		f.all[0].setTime(f.v.now)
		f.all[0].payDebts(t.Context())
	}
	if left := f.decide(0, c[0], k, 1).Zones[0].Results[0].Remaining; left != 100_000-20_000-9970-1 {
		t.Errorf("%d of 100000 left after 20000, a debt of 9970 and 1", left)
	}
}

// TestFirstCheckAfterALossIsJudged uses a limit up and makes Redis forget it. The next check
// of each instance is denied.
func TestFirstCheckAfterALossIsJudged(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range lostSpecs() {
		f := newFleet(t, srv, 3)
		f.v.now += storekit.Hour / 2
		c := f.counters(t, "first-"+name, spec)
		for i := range f.all {
			f.decide(i, c[i], k, 34) // the last one is denied
			f.drain(i, c[i], k)
		}
		for i := range f.all {
			f.v.flush(t)
			f.v.now += 2 * deniedLasts
			if check := f.decide(i, c[i], k, 3); check.Admitted || check.Mode != stores.ModeShared {
				t.Errorf("%s: instance %d admits after a loss, in mode %v", name, i, check.Mode)
			}
		}
	}
}

// TestGreaterSnapshotIsPutBack lets the instance that knows least of a key put it back. The
// others find that there is less than they know, and put that back with their next check.
func TestGreaterSnapshotIsPutBack(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range lostSpecs() {
		f := newFleet(t, srv, 2)
		f.v.now += storekit.Hour / 2
		c := f.counters(t, "greater-"+name, spec)
		f.decide(0, c[0], k, 10)
		for range 40 {
			f.v.now += 1000
			f.decide(1, c[1], k, 2)
		}
		f.v.flush(t)
		f.decide(0, c[0], k, 1)
		for n, want := range []int64{100 - 10 - 1 - 1, 100 - 90 - 1 - 1} {
			f.v.now += 1000
			// The put-back keeps the maximum: the charges since the loss may be part of it.
			if left := f.decide(1, c[1], k, 1).Zones[0].Results[0].Remaining; left < want-1 || left > want+2 {
				t.Errorf("%s, check %d of the instance that knows 90: %d left of 100, want about %d", name, n, left, want)
			}
		}
	}
}

// TestUncheckedKeysWithPermitsArePutBack is like TestUncheckedKeysArePutBack for a zone with
// count_status, each of whose keys has a key of permits too: each gets its own counts.
func TestUncheckedKeysWithPermitsArePutBack(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 1)
	s := f.all[0]
	c := kit.NewTestCounter(t, "held", 0, true, nil, lostSpecs()["fixed_window"])
	for k := range uint64(5) {
		check := f.decide(0, c, stores.Key{Hi: k, Lo: 1}, int64(10+k))
		s.setTime(f.v.now)
		s.Finish(t.Context(), &check.Zones[0], int64(10+k))
		f.decide(0, c, stores.Key{Hi: k, Lo: 1}, 200) // denied: tells what is charged
	}
	f.v.flush(t)
	s.loseKey()
	s.setTime(f.v.now)
	s.payDebts(t.Context())
	for k := range uint64(5) {
		got := f.decide(0, c, stores.Key{Hi: k, Lo: 1}, 1).Zones[0].Results[0].Remaining
		if want := int64(100 - 1 - 10 - k); got != want {
			t.Errorf("key %d: %d left, want %d", k, got, want)
		}
	}
}
