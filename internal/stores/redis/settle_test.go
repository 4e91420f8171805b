package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// settling is a fleet with a zone that settles 12 per minute.
type settling struct {
	*fleet
	t        *testing.T
	counters []*stores.Counter
	key      stores.Key
}

func newSettling(t *testing.T, srv *redistest.Server, instances int, name string, spec storekit.RuleSpec, onFailure stores.OnFailure) *settling {
	t.Helper()
	f := newFleet(t, srv, instances, func(o *Options) { o.OnFailure = onFailure })
	for _, s := range f.all {
		s.markUp()
	}
	spec.Spec.Overdraws = true
	return &settling{f, t, f.counters(t, name, spec), stores.Key{Hi: 1, Lo: 2}}
}

// admit has instance 0 admit a request in Redis.
func (s *settling) admit() *stores.ZoneCheck {
	s.t.Helper()
	check := s.decide(0, s.counters[0], s.key, 1)
	if !check.Admitted || check.Mode != stores.ModeShared {
		s.t.Fatalf("admitted %v in mode %v", check.Admitted, check.Mode)
	}
	return &check.Zones[0]
}

// settle charges cost at instance 0 after the response.
func (s *settling) settle(z *stores.ZoneCheck, cost int64) {
	s.all[0].setTime(s.v.now)
	s.all[0].Finish(context.Background(), z, cost)
}

// recover makes Redis available and waits for the end of the ramp.
func (s *settling) recover() {
	s.set(-1, noFault)
	s.v.now += rampLasts
}

// TestSettleWhileRedisIsAway settles requests that Redis has admitted after the breaker
// has opened, or has Redis refuse. Everything is charged in Redis when it is back, with
// the next check of the key or in the background, whatever on_failure says.
func TestSettleWhileRedisIsAway(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range eachAlgorithm() {
		for _, onFailure := range []stores.OnFailure{stores.FailLocal, stores.FailAllow, stores.FailDeny} {
			for _, instances := range []int{1, 3} {
				for _, background := range []bool{false, true} {
					what := fmt.Sprintf("%s-%v-%d-%v", name, onFailure, instances, background)
					s := newSettling(t, srv, instances, what, spec, onFailure)
					first, second := s.admit(), s.admit()
					s.set(0, faultOOM)
					owed := 4 // this instance's share, if it has one
					if onFailure != stores.FailLocal {
						owed = 8
					}
					s.settle(first, int64(owed-1)) // refused, which opens the breaker
					if !s.all[0].isDown() {
						t.Fatalf("%s: the breaker is closed", what)
					}
					s.settle(second, 1)
					s.recover()
					if background {
						s.all[0].setTime(s.v.now)
						s.all[0].payDebts(context.Background())
						if s.all[0].payDebts(context.Background()); owes(s.counters[0]) {
							t.Errorf("%s: debts remain", what)
						}
					} else {
						s.decide(0, s.counters[0], s.key, 12)
					}
					if n := s.drain(instances-1, s.counters[instances-1], s.key); n != 10-owed {
						t.Errorf("%s: %d admitted after 2 and %d of 12, want %d", what, n, owed, 10-owed)
					}
				}
			}
		}
	}
}

// TestSettleOfUnknownOutcome loses the call that settles, or its reply. The charge counts
// without Redis, and is not charged in Redis again.
func TestSettleOfUnknownOutcome(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range eachAlgorithm() {
		for fault, want := range map[fault]int{faultReply: 2, faultTimeout: 6} {
			s := newSettling(t, srv, 1, fmt.Sprintf("%s-%d", name, fault), spec, stores.FailLocal)
			first, second := s.admit(), s.admit()
			s.set(0, fault)
			s.settle(first, 4)
			s.set(0, faultOOM)
			s.settle(second, 3) // certainly not charged
			if n := s.drain(0, s.counters[0], s.key); n != 3 {
				t.Errorf("%s, fault %d: %d admitted without Redis after 2, 4 and 3 of 12, want 3", name, fault, n)
			}
			s.recover()
			if n := s.drain(0, s.counters[0], s.key); n != want-2 {
				t.Errorf("%s, fault %d: %d admitted in Redis, want %d", name, fault, n, want-2)
			}
		}
	}
}

// TestHugeSettles settles more than any rule can owe, while Redis is away, and while the
// outcome is unknown. The key is denied, and admitted when the debt has drained. A debt that was
// charged elsewhere is at most a capacity.
func TestHugeSettles(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range eachAlgorithm() {
		for _, fault := range []fault{faultOOM, faultTimeout, faultReply} {
			s := newSettling(t, srv, 1, fmt.Sprintf("huge-%s-%d", name, fault), spec, stores.FailLocal)
			z := s.admit()
			s.set(0, fault)
			s.settle(z, 1<<60)
			s.set(0, faultOOM)
			if n := s.drain(0, s.counters[0], s.key); n != 0 {
				t.Errorf("%s, fault %d: %d admitted without Redis, want none", name, fault, n)
			}
			s.recover()
			want := 0
			if fault == faultTimeout { // which Redis has not seen
				want = 11
			}
			if n := s.drain(0, s.counters[0], s.key); n != want {
				t.Errorf("%s, fault %d: %d admitted in Redis, want %d", name, fault, n, want)
			}
			s.v.now += 3 * spec.Spec.Window
			want = 12
			if _, meter := s.counters[0].Rules[0].(algorithms.Refilling); meter && fault == faultReply { // Redis has charged all of it
				want = 0
			}
			if n := s.drain(0, s.counters[0], s.key); n != want {
				t.Errorf("%s, fault %d: %d admitted after three windows, want %d", name, fault, n, want)
			}
		}
	}
}

// TestDebtsOfALogAreBounded settles many requests that were admitted together, each for the whole limit.
func TestDebtsOfALogAreBounded(t *testing.T) {
	const limit = 100
	s := newVirtualStore(t)
	c := kit.NewTestCounter(t, "bounded", 0, false, nil,
		storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1, Overdraws: true}})
	var zones [limit]*stores.ZoneCheck
	for i := range zones {
		zones[i] = s.at(float64(i), c, 1)
	}
	for _, z := range zones {
		s.set(limit)
		s.Finish(t.Context(), z, limit)
	}
	n, err := s.v.client.StrLen(t.Context(), namesOf("diana", zones[0])[0]).Result()
	if err != nil || n > 8*(128+2*128+8) {
		t.Errorf("the log takes %d bytes (%v), want a ring of 128 timestamps and one of 256", n, err)
	}
	if z := s.at(limit+3599, c, 1); z.Charged {
		t.Error("admitted an hour after the first request, and not after the debts")
	}
	if z := s.at(limit+3602, c, 1); !z.Charged {
		t.Error("denied an hour after the debts")
	}
}

// TestDebtsUnderALowerLimit settles requests under a limit below what the log of their key was charged by
// then. Both stores charge nothing more, and forget nothing.
func TestDebtsUnderALowerLimit(t *testing.T) {
	w := newBothStores(t)
	spec := func(limit int64) storekit.RuleSpec {
		return storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1, Overdraws: true}}
	}
	low := kit.NewTestCounter(t, "log", 0, false, nil, spec(2))
	high := kit.NewTestCounter(t, "log", 0, false, low.Table, spec(40))
	checks := []*stores.Check{w.decide(0, 1, low), w.decide(0, 1, low)}
	w.decide(10, 30, high)
	for _, check := range checks {
		w.set(20)
		w.finish(&check.Zones[0], 2)
	}
	if left := w.decide(30, 1, high).Zones[0].Results[0].Remaining; left != 40-2-30-1 {
		t.Errorf("%d of 40 left after 2, 30 and 1, want %d", left, 40-2-30-1)
	}
}

// TestUnknownSettleForgivesItself loses a call that settles more than a log can owe, and
// then settles another request without Redis. What the second one owes is charged.
func TestUnknownSettleForgivesItself(t *testing.T) {
	s := newSettling(t, redistest.Start(t), 1, "forgives", eachAlgorithm()["sliding_log"], stores.FailLocal)
	first, second := s.admit(), s.admit()
	s.set(0, faultTimeout)
	s.settle(first, 1<<40)
	s.set(0, faultOOM)
	s.settle(second, 3)
	s.recover()
	if n := s.drain(0, s.counters[0], s.key); n != 7 {
		t.Errorf("%d admitted after 2 and 3 of 12, want 7", n)
	}
}

// TestUnknownSettleLeavesOtherDebts has a charge rejected, and another one, more than any rule can
// owe, with an unknown outcome. What is certainly owed is charged.
func TestUnknownSettleLeavesOtherDebts(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range eachAlgorithm() {
		s := newSettling(t, srv, 1, "leaves-"+name, spec, stores.FailLocal)
		first, second := s.admit(), s.admit()
		s.set(0, faultOOM)
		s.settle(second, 9)
		s.all[0].fallback.Settle(first, 1<<40, errUnanswered) // its call had left before
		s.recover()
		if n := s.drain(0, s.counters[0], s.key); n != 1 {
			t.Errorf("%s: %d admitted after 2 and 9 of 12, want 1", name, n)
		}
	}
}

// TestHeldWhileRedisIsAway ends requests whose cost is held in Redis while Redis is away, for
// longer than a report is repeated. What they were charged is charged in Redis afterwards, and
// nothing is held.
func TestHeldWhileRedisIsAway(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range eachAlgorithm() {
		for _, inFlight := range []int64{0, 5} {
			spec.Spec.Window = storekit.Hour
			s := newSettling(t, srv, 1, fmt.Sprintf("held-%s-%d", name, inFlight), spec, stores.FailLocal)
			c := s.counters[0]
			c.HoldCost, c.InFlight = true, inFlight
			first, second, third := s.admit(), s.admit(), s.admit()
			s.set(0, faultOOM)
			s.settle(first, 1) // refused, which opens the breaker
			if !s.all[0].isDown() {
				t.Fatalf("%s: the breaker is closed", name)
			}
			s.settle(second, 3)
			s.settle(third, 2)
			if first.Permit.Taken || second.Permit.Taken || third.Permit.Taken {
				t.Errorf("%s: a permit is taken", name)
			}
			alone := &s.decide(0, c, s.key, 1).Zones[0] // the first counts when it is certain that it is not charged
			if left := alone.Results[0].Remaining; left != 6 {
				t.Errorf("%s, in_flight %d: %d left of 12 without Redis, want 6", name, inFlight, left)
			}
			s.all[0].Finish(t.Context(), alone, 0)
			s.v.now += 60_000_000
			s.all[0].setTime(s.v.now)
			s.all[0].renewPermits()
			s.recover()
			s.all[0].renewPermits()
			z := &s.decide(0, c, s.key, 1).Zones[0]
			if left := z.Results[0].Remaining; z.Held != 0 || left != 5 {
				t.Errorf("%s, in_flight %d: %d left of 12, %d held, want 5 and 0", name, inFlight, left, z.Held)
			}
		}
	}
}
