package redis

import (
	"testing"

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
