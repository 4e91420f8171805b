package storetest

import (
	"testing"

	"github.com/dianalimiter/diana/stores"
)

// inFlight admits as many requests at a time as there are permits.
func inFlight(t testing.TB, c *Config) {
	a, b, zone := c.New(t), c.New(t), counter(t, 0)
	zone.InFlight = 2
	first := decide(t, a, ask(1, zone))
	wantAdmitted(t, "the second of two", decide(t, b, ask(1, zone)), true)
	third := decide(t, a, ask(1, zone))
	wantAdmitted(t, "a third", third, false)
	if z := &third.Zones[0]; !z.Full || z.Charged || z.HasPermit() {
		t.Errorf("%+v: want all permits in use", z)
	}
	for range 2 { // finished twice: the permit is given back once
		a.Finish(t.Context(), &first.Zones[0], 0)
	}
	wantAdmitted(t, "after the first", decide(t, a, ask(1, zone)), true)
	wantAdmitted(t, "a third at the same time", decide(t, a, ask(1, zone)), false)
}

// lingers charges a request that keeps its permit.
func lingers(t testing.TB, c *Config) {
	s, zone := c.New(t), tenPerHour(t)
	zone.InFlight = 1
	z := &decide(t, s, ask(1, zone)).Zones[0]
	z.KeepsPermit = true
	s.Finish(t.Context(), z, 3)
	check := decide(t, s, ask(1, zone))
	if z := &check.Zones[0]; !z.Full || z.Results[0].Remaining != 6 {
		t.Errorf("%+v: want 4 of 10 charged, and the permit in use", z)
	}
	z.KeepsPermit, z.Cost = false, 0
	s.Finish(t.Context(), z, 0)
	wantAdmitted(t, "after the request", decide(t, s, ask(1, zone)), true)
}

// heldCost holds the cost of a request, and charges another one in the end.
func heldCost(t testing.TB, c *Config) {
	a, b, zone := c.New(t), c.New(t), tenPerHour(t)
	zone.HoldCost = true
	z := &decide(t, a, ask(6, zone)).Zones[0]
	wantHeld(t, b, zone, 5)
	wantLeft(t, b, zone, 4)
	a.Finish(t.Context(), z, 2)
	wantLeft(t, b, zone, 8)
	z = &decide(t, b, ask(8, zone)).Zones[0]
	wantHeld(t, a, zone, 1)
	b.Finish(t.Context(), z, 0)
	wantLeft(t, a, zone, 8)
}

// wantHeld checks that a cost is denied because of what other requests hold.
func wantHeld(t testing.TB, s stores.Store, c *stores.Counter, cost int64) {
	t.Helper()
	check := decide(t, s, seeing(ask(cost, c)))
	wantAdmitted(t, "beside a cost that is held", check, false)
	if z := &check.Zones[0]; z.Charged || !z.Results[0].Held {
		t.Errorf("%+v: want that nothing is charged, because of what is held", z)
	}
}

// reserve holds a cost for the sake of another store: it can be given back without a trace, or charged.
func reserve(t testing.TB, c *Config) {
	s, zone := c.New(t), tenPerHour(t)
	reserved := func(cost int64) *stores.ZoneCheck {
		check := seeing(ask(cost, zone))
		check.Zones[0].Reserve = true
		wantAdmitted(t, "a reservation", decide(t, s, check), true)
		return &check.Zones[0]
	}
	z := reserved(7)
	if !z.Charged || !z.HasPermit() {
		t.Errorf("%+v: want it to hold the cost", z)
	}
	wantLeft(t, s, zone, 3)
	wantHeld(t, s, zone, 4)
	s.Finish(t.Context(), z, 0)
	wantLeft(t, s, zone, 10)
	z = reserved(7)
	s.Finish(t.Context(), z, 7)
	wantLeft(t, s, zone, 3)
	for range 2 { // the end of the request, which holds nothing any more
		s.Finish(t.Context(), z, 0)
	}
	wantLeft(t, s, zone, 3)

	zone = tenPerHour(t)
	zone.InFlight = 1
	z = reserved(2)
	z.KeepsPermit = true
	s.Finish(t.Context(), z, 2) // only the hold ends
	z.Reserve, z.KeepsPermit = false, false
	check := decide(t, s, ask(1, zone))
	if z := &check.Zones[0]; !z.Full || z.Results[0].Remaining != 8 {
		t.Errorf("%+v: want the cost charged, and the permit in use", z)
	}
	s.Finish(t.Context(), z, 0)
	wantAdmitted(t, "after the request", decide(t, s, ask(1, zone)), true)
}
