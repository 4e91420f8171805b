package redis

import (
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// TestRenewalsLeaveChargesToRequests has a renewal come due while a request ends, whose call tells
// what the charge has used, and has a request end while a renewal is under way.
func TestRenewalsLeaveChargesToRequests(t *testing.T) {
	s := newCallStore(t)
	c := kit.NewTestCounter(t, "told", 5, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1, Overdraws: true}})
	c.Notifies = true
	s.at(0, c, 1)
	z := s.at(0, c, 1)
	s.permits.beginEnd(z, time.Time{})
	q := s.endCall(z, 10)
	s.losePermits()
	s.set(1)
	s.renewPermits()
	s.answer(q, s.execute(t, s.send(q)))
	told := reply{b: q.text}
	told.readCharge(z, s.v.now)
	if want := [2]int64{2, 12}; z.Results[0].Used != want {
		t.Errorf("used before and after the charge: %v, want %v", z.Results[0].Used, want)
	}

	s = newCallStore(t)
	z = s.at(0, c, 1)
	s.set(20)
	s.permits.round++
	some := s.permits.due(2)
	if len(some) != 1 {
		t.Fatalf("%d records are due, want 1", len(some))
	}
	ended := make(chan struct{})
	go func() {
		s.permits.beginEnd(z, time.Now().Add(time.Hour))
		close(ended)
	}()
	select {
	case <-ended:
		t.Error("a request ended while its key was reported")
	case <-time.After(20 * time.Millisecond):
	}
	s.renewals.report(some[0])
	<-ended
}

// TestBlockedChecksLeaveChargesToRequests has a check of a key that is blocked leave while a request of
// the key ends, whose call tells what the charge has used. If Redis has lost what is held, the check puts
// it back, and makes the charge.
func TestBlockedChecksLeaveChargesToRequests(t *testing.T) {
	for lost, want := range map[bool][2]int64{false: {2, 12}, true: {12, 12}} {
		s := newCallStore(t)
		c := kit.NewTestCounter(t, "blocked", 5, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1, Overdraws: true}})
		c.Notifies, c.Blocks, c.Blocked = true, []int64{storekit.Hour}, memory.NewBlocks(100)
		s.at(0, c, 1)
		z := s.at(0, c, 1)
		if s.at(0, c, 100).Block.Until == 0 {
			t.Fatal("no block has started")
		}
		q := s.endCall(z, 10)
		if lost {
			s.v.client.Del(t.Context(), namesOf("diana", z)[1])
		}
		calls := s.CallStats().Calls
		if denied := s.at(0, c, 1); !denied.Blocked() || s.CallStats().Calls != calls+1 {
			t.Errorf("blocked %v, after %d calls, want 1", denied.Blocked(), s.CallStats().Calls-calls)
		}
		s.answer(q, s.execute(t, s.send(q)))
		told := reply{b: q.text}
		if told.readCharge(z, s.v.now); z.Results[0].Used != want {
			t.Errorf("lost %v: used before and after the charge: %v, want %v", lost, z.Results[0].Used, want)
		}
	}
}
