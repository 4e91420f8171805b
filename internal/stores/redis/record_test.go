package redis

import (
	"errors"
	"testing"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestThirdCallIsMadeAgain has two calls of a key under way through one batcher and a check through
// another, as when a Cluster's slots become known. It is decided once a report can name all that are under
// way, so that each of them keeps its permit.
func TestThirdCallIsMadeAgain(t *testing.T) {
	s, c := newCallStore(t), inFlightCounter(t, "several", 3)
	var calls [callsInFlight]*call
	var zones [callsInFlight + 1]*stores.ZoneCheck
	var texts [callsInFlight]string
	for i := range calls {
		calls[i], zones[i] = s.leave(c)
	}
	for i, q := range calls {
		texts[i] = s.execute(t, q)
	}
	s.set(0)
	before, decided := s.conn.seq.Load(), make(chan struct{})
	go func() {
		defer close(decided)
		check := storekit.CheckOfKey(c, 1)
		s.Decide(t.Context(), check)
		zones[callsInFlight] = &check.Zones[0]
	}()
	waitFor(t, "the check is made again", func() bool { return s.conn.seq.Load() > before+1 })
	for i, q := range calls {
		s.answer(q, texts[i])
	}
	<-decided
	name := namesOf("diana", zones[0])[1]
	if n := permitsIn(t, s.v.client, name); n != 3 {
		t.Errorf("%d permits in Redis, 3 are held", n)
	}
	for i, z := range zones {
		if !z.Permit.Taken {
			t.Fatalf("check %d took no permit", i)
		}
		s.set(1)
		s.Finish(t.Context(), z, 0)
	}
	s.set(1)
	s.renewPermits()
	if n := permitsIn(t, s.v.client, name); n != 0 || s.holdsPermits() || s.permits.held.Of(zones[0]) != (memory.Held{}) {
		t.Errorf("%d permits in Redis after the end, records remain: %v", n, s.holdsPermits())
	}
}

// TestThirdCallIsFirst executes a check and the end of a request before the two calls of their key that
// are under way. Both change nothing, and Redis is told of the end as soon as it can be.
func TestThirdCallIsFirst(t *testing.T) {
	s, c := newCallStore(t), inFlightCounter(t, "first", 3)
	held := s.at(0, c, 1)
	var calls [callsInFlight]*call
	for i := range calls {
		calls[i], _ = s.leave(c)
	}
	check, _ := s.leave(c)
	reply := reply{b: s.execute(t, check)[24:]}
	if err := reply.failed(); !errors.Is(err, errOvertaken) {
		t.Fatalf("the third call is answered with %v, want %v", err, errOvertaken)
	}
	s.permits.arrive(check.batch, nil)
	end := s.leaveEnd(held, 0)
	s.answer(end, s.execute(t, end))
	for _, q := range calls {
		s.answer(q, s.execute(t, q))
	}
	name := namesOf("diana", held)[1]
	s.set(1)
	if s.renewPermits(); permitsIn(t, s.v.client, name) != callsInFlight {
		t.Errorf("%d permits in Redis, %d are held", permitsIn(t, s.v.client, name), callsInFlight)
	}
}

// TestRefusedChargesAreOwed has the calls that end two requests, with charges of 1 and 2, fail, and tells
// Redis of nothing for 29 s. What no call has reported that may have run is owed, and charged afterwards.
// The rest is charged here alone.
func TestRefusedChargesAreOwed(t *testing.T) {
	underWay, unsent := errors.New("not answered yet"), errors.New("not sent yet")
	for _, c := range []struct {
		first, second error
		unknown       int64
	}{
		{errOpen, errOpen, 0},
		{errUnanswered, errOpen, 1},
		{errOpen, errUnanswered, 3},
		{errOpen, underWay, 3},
		{underWay, unsent, 1},
	} {
		s, counter := newCallStore(t), holdingCounter(t, "refused")
		var told uncharged
		s.Observe(&told)
		ends := [2]*stores.ZoneCheck{s.at(0, counter, 1), s.at(0, counter, 1)}
		for i, err := range []error{c.first, c.second} {
			if errors.Is(err, unsent) {
				s.endCall(ends[i], int64(1+i))
			} else if q := s.leaveEnd(ends[i], int64(1+i)); !errors.Is(err, underWay) {
				s.permits.arrive(q.batch, err)
			}
		}
		s.set(29.1)
		s.permits.dropLapsed() // as a round without Redis does
		s.renewPermits()
		if left := s.at(29.1, counter, 1).Results[0].Remaining; told.cost != c.unknown || left != 6+c.unknown {
			t.Errorf("%v, %v: %d may not be charged, %d left of 10 with 1 held; want %d and %d", c.first, c.second, told.cost, left, c.unknown, 6+c.unknown)
		}
	}
}

// TestGivenUpChargesOutliveTheirRecord tells Redis of nothing until the record of a charge is forgotten, too. A
// store that closes waits until the charge is made here.
func TestGivenUpChargesOutliveTheirRecord(t *testing.T) {
	s, counter := newCallStore(t), holdingCounter(t, "forgotten")
	end := s.leaveEnd(s.at(0, counter, 1), 1)
	s.permits.arrive(end.batch, errOpen)
	s.set(30.1)
	s.permits.dropLapsed()
	if len(s.permits.records) != 0 || !s.holdsPermits() {
		t.Errorf("%d records; the store closes: %v", len(s.permits.records), !s.holdsPermits())
	}
	if s.renewals.giveUpUnsaid(); s.holdsPermits() || !owes(counter) {
		t.Errorf("the charge is owed: %v", owes(counter))
	}
}

// TestDeniedCheckMayHaveCharged has the call that ends a request refused. A check that is denied charges
// for it. Its reply does not say so, and Redis is told of nothing for 29 s: the charge is not owed.
func TestDeniedCheckMayHaveCharged(t *testing.T) {
	s, c := newCallStore(t), holdingCounter(t, "denied")
	var told uncharged
	s.Observe(&told)
	first := s.at(0, c, 1)
	s.at(0, c, 9)
	end := s.leaveEnd(first, 1)
	s.permits.arrive(end.batch, errOpen)
	check, z := s.leave(c)
	if s.answer(check, s.execute(t, check)); z.Permit.Taken {
		t.Fatal("admitted beside 9 of 10 that are held and 1 that is charged")
	}
	s.set(29.1)
	if s.renewPermits(); told.cost != 1 {
		t.Errorf("%d may not be charged, want 1", told.cost)
	}
}
