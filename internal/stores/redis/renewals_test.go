package redis

import (
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// TestRenewalsLeaveChargesToRequests has a renewal come due while a request ends, whose call tells
// what the charge has used, and has a request end while a renewal is under way.
func TestRenewalsLeaveChargesToRequests(t *testing.T) {
	s := newCallStore(t)
	c := storestest.NewTestCounter(t, "told", 5, false, nil, storestest.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 100, Window: storestest.Hour, Cost: 1, Debt: true}})
	c.Notifies = true
	s.at(0, c, 1)
	z := s.at(0, c, 1)
	s.permits.beginEnd(z, time.Time{})
	_, q := s.permits.end(z, 10, time.Time{})
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
	s.permits.reportTogether(some)
	<-ended
}
