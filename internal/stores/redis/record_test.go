package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// TestMoreCallsThanABatcherHas has calls of a key under way through two batchers, as when a Cluster's
// slots become known. The one that takes the only permit is answered last. When its request has ended,
// nothing is held.
func TestMoreCallsThanABatcherHas(t *testing.T) {
	s, c := newCallStore(t), inFlightCounter(t, "several", 1)
	var calls [callsInFlight + 1]*call
	var zones [len(calls)]*stores.ZoneCheck
	for i := range calls {
		calls[i], zones[i] = s.leave(c)
	}
	last := len(calls) - 1
	text := s.execute(t, calls[last])
	for _, q := range calls[:last] {
		s.answer(q, s.execute(t, q))
	}
	s.answer(calls[last], text)
	if !zones[last].Permit.Taken {
		t.Fatal("the first call that was executed took no permit")
	}
	s.set(0)
	s.Finish(t.Context(), zones[last], 0)
	s.set(0)
	s.renewPermits()
	name := namesOf("diana", zones[0])[1]
	if n := permitsIn(t, s.v.client, name); n != 0 || s.holdsPermits() || s.permits.held.Of(zones[0]) != (memory.Held{}) {
		t.Errorf("%d permits in Redis after the end, records remain: %v", n, s.holdsPermits())
	}
}

// TestMoreCallsAreReported has calls of a key under way through two batchers, each of which takes a
// permit. A report can name one of the others: what the rest took is reported at once.
func TestMoreCallsAreReported(t *testing.T) {
	s, c := newCallStore(t), inFlightCounter(t, "rest", 10)
	var calls [callsInFlight + 1]*call
	for i := range calls {
		calls[i], _ = s.leave(c)
	}
	name := ""
	for _, q := range calls {
		s.answer(q, s.execute(t, q))
		name = string(q.names[1].b)
	}
	s.set(0)
	s.renewPermits()
	if n := permitsIn(t, s.v.client, name); n != int64(len(calls)) {
		t.Errorf("%d permits in Redis, %d are held", n, len(calls))
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
				_, _ = s.permits.end(ends[i], int64(1+i), time.Time{})
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
