package storetest

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// across decides a check of two zones, the first of them in the store under test, the second in
// one of this process.
func across(t testing.TB, s stores.Store, check *stores.Check) *stores.Check {
	stores.Across(t.Context(), check, []stores.Store{s, local()})
	return check
}

// local returns a store of this process. Its counts lie in the tables of the counters.
func local() stores.Store { return &memory.Store{Clock: func() int64 { return hour * 1000 }} }

// acrossDenied has a store give back what it held when another one denies.
func acrossDenied(t testing.TB, c *Config) {
	s, first, second := c.New(t), tenPerHour(t), tenPerHour(t)
	decide(t, local(), ask(10, second))
	for range 3 { // each would take 4 of 10
		check := across(t, s, ask(4, first, second))
		wantAdmitted(t, "the other store denies", check, false)
		if z := &check.Zones[0]; z.Charged || z.HasPermit() || z.Reserve || len(z.Results) != 1 || z.Results[0].Remaining != 10 {
			t.Errorf("%+v: want nothing charged, held or used", z)
		}
	}
	wantLeft(t, s, first, 10)
	decide(t, s, ask(10, first))
	third := tenPerHour(t)
	check := across(t, s, ask(4, first, third))
	wantAdmitted(t, "the store denies", check, false)
	if z := &check.Zones[1]; z.Charged || len(z.Results) != 1 {
		t.Errorf("%+v: want the results of the other store, and nothing charged", z)
	}
	wantLeft(t, local(), third, 10)
}

// acrossAdmitted charges in both stores, whichever comes first.
func acrossAdmitted(t testing.TB, c *Config) {
	s, first, second := c.New(t), tenPerHour(t), tenPerHour(t)
	for n := range int64(2) {
		check := ask(4, first, second)
		if n == 1 { // the store under test decides last, and reserves nothing
			first.Last = true
		}
		wantAdmitted(t, "both stores admit", across(t, s, check), true)
		for i := range check.Zones {
			if z := &check.Zones[i]; !z.Charged || z.HasPermit() || z.Reserve || z.Results[0].Remaining != 6-4*n {
				t.Errorf("zone %d: %+v: want it charged, nothing held, and %d left", i, z, 6-4*n)
			}
		}
	}
	wantLeft(t, s, first, 2)
	wantLeft(t, local(), second, 2)
}

// acrossPeek charges nothing in any store.
func acrossPeek(t testing.TB, c *Config) {
	s, first, second := c.New(t), tenPerHour(t), tenPerHour(t)
	check := ask(4, first, second)
	check.Peek = true
	wantAdmitted(t, "a peek", across(t, s, check), true)
	wantLeft(t, s, first, 10)
	wantLeft(t, local(), second, 10)
}

// acrossShadow charges a shadow in the store only if the zone in the other one admits.
func acrossShadow(t testing.TB, c *Config) {
	s, shadowed, live := c.New(t), tenPerHour(t), tenPerHour(t)
	decide(t, local(), ask(7, live))
	for _, want := range []bool{true, false} {
		check := ask(3, live, shadowed)
		check.Shadows = 1
		stores.Across(t.Context(), check, []stores.Store{local(), s})
		wantAdmitted(t, "the other store, which has 3 of 10 left", check, want)
		wantLeft(t, s, shadowed, 7)
	}
}

// acrossBlock blocks the key of a zone that would deny, though another store denies first.
func acrossBlock(t testing.TB, c *Config) {
	s, first, second := c.New(t), tenPerHour(t), tenPerHour(t)
	first.Blocks, first.Blocked = []int64{hour}, memory.NewBlocks(100)
	decide(t, s, ask(10, first))
	decide(t, local(), ask(10, second))
	check := ask(1, second, first)
	stores.Across(t.Context(), check, []stores.Store{local(), s})
	wantAdmitted(t, "both deny", check, false)
	if !check.Zones[1].Block.Started {
		t.Errorf("%+v: want a block, whichever store denies first", check.Zones[1])
	}
	if check := decide(t, s, ask(1, first)); !check.Zones[0].Blocked() {
		t.Errorf("%+v: want the key blocked", check.Zones[0])
	}
}

// acrossQueue delays a request, in the order of the queue.
func acrossQueue(t testing.TB, c *Config) {
	s, queue, plain := c.New(t), counter(t, 120, &algorithms.LeakyBucket{Burst: 10}), tenPerHour(t)
	queue.Last = true
	for n := range int64(3) {
		check := across(t, s, ask(1, queue, plain))
		wantAdmitted(t, "a queue with room", check, true)
		if most := n * 30_000_000; check.Turn > most || n > 0 && check.Turn == 0 {
			t.Errorf("request %d waits %d us, want up to %d", n, check.Turn, most)
		}
	}
	wantLeft(t, local(), plain, 7)
}
