package storetest

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// limit admits a limit, denies the rest, and says what is left.
func limit(t testing.TB, c *Config) {
	s, zone := c.New(t), tenPerHour(t)
	for n, cost := range []int64{4, 6} {
		check := decide(t, s, ask(cost, zone))
		z := &check.Zones[0]
		wantAdmitted(t, "within the limit", check, true)
		if !z.Admits || !z.Charged || check.Now == 0 || len(z.Rules) != 1 || len(z.Results) != 1 {
			t.Fatalf("admitted: %+v, now %d: want it charged, with a result of its rule, and a time", z, check.Now)
		}
		res := &z.Results[0]
		if want := []int64{6, 0}[n]; res.Remaining != want || res.Reset <= 0 || res.Reset > hour || res.More <= 0 || res.More > hour {
			t.Errorf("%+v: want %d remaining, and more within an hour", res, want)
		}
	}
	for range 2 {
		check := decide(t, s, ask(1, zone))
		wantAdmitted(t, "above the limit", check, false)
		z := &check.Zones[0]
		if z.Admits || z.Charged || z.Results[0].Admit || z.Results[0].Retry <= 0 || z.Results[0].Retry > hour {
			t.Errorf("denied: %+v: want the time until it is admitted, and nothing charged", z)
		}
	}
	check := ask(1, zone)
	check.Zones[0].Key, check.Zones[0].Tag = stores.Key{Hi: 3, Lo: 4}, stores.Key{Hi: 3, Lo: 4}
	wantAdmitted(t, "another key", decide(t, s, check), true)
	wantAdmitted(t, "another zone", decide(t, s, ask(1, tenPerHour(t))), true)
}

// allOrNothing charges all zones of a check, or none.
func allOrNothing(t testing.TB, c *Config) {
	s, first, second := c.New(t), tenPerHour(t), tenPerHour(t)
	wantAdmitted(t, "within both limits", decide(t, s, ask(7, first, second)), true)
	wantAdmitted(t, "in the second zone alone", decide(t, s, ask(3, second)), true)
	check := decide(t, s, ask(1, first, second))
	wantAdmitted(t, "above one of the limits", check, false)
	if a, b := &check.Zones[0], &check.Zones[1]; !a.Admits || b.Admits || a.Charged || b.Charged {
		t.Errorf("%+v, %+v: want that only the second denies, and neither is charged", a, b)
	}
	wantLeft(t, s, first, 3)
}

// peek decides and charges nothing.
func peek(t testing.TB, c *Config) {
	s, zone := c.New(t), tenPerHour(t)
	for range 2 {
		check := ask(8, zone)
		check.Peek = true
		wantAdmitted(t, "a peek", decide(t, s, check), true)
		if z := &check.Zones[0]; z.Charged || z.Results[0].Remaining != 10 {
			t.Errorf("a peek: %+v: want nothing charged", z)
		}
	}
	decide(t, s, ask(8, zone))
	check := ask(3, zone)
	check.Peek = true
	wantAdmitted(t, "a peek above the limit", decide(t, s, check), false)
	wantLeft(t, s, zone, 2)
}

// shadow decides shadows on their own: they deny nothing, and are charged only if the others admit.
func shadow(t testing.TB, c *Config) {
	s, live, shadowed := c.New(t), tenPerHour(t), tenPerHour(t)
	both := func(cost int64) *stores.Check {
		check := ask(cost, live, shadowed)
		check.Shadows = 1
		return decide(t, s, check)
	}
	decide(t, s, ask(6, shadowed))
	check := both(5)
	wantAdmitted(t, "a shadow that denies", check, true)
	if z := &check.Zones[1]; z.Admits || z.Charged {
		t.Errorf("a shadow that denies: %+v: want it to say so, and not to be charged", z)
	}
	wantLeft(t, s, live, 5)
	wantAdmitted(t, "a shadow that admits", both(4), true)
	wantLeft(t, s, shadowed, 0)
	s, live, shadowed = c.New(t), tenPerHour(t), tenPerHour(t)
	decide(t, s, ask(10, live))
	wantAdmitted(t, "a live zone that denies", both(1), false)
	wantLeft(t, s, shadowed, 10)
}

// joined charges two shadows of one zone together, or neither, such as its rules and its prevent_duplicates, which
// counts under another key.
func joined(t testing.TB, c *Config) {
	for denies := range 2 {
		s, of := c.New(t), []*stores.Counter{tenPerHour(t), tenPerHour(t)}
		of[1].Zone = of[0].Zone
		both, used := ask(1, of...), ask(10, of[denies])
		both.Zones[1].Key, both.Shadows = stores.Key{Hi: 1, Lo: 3}, 2
		used.Zones[0].Key = both.Zones[denies].Key
		decide(t, s, used)
		wantAdmitted(t, "two shadows", decide(t, s, both), true)
		if z := &both.Zones[1-denies]; !z.Admits || z.Charged {
			t.Errorf("%+v: want it not charged, because the shadow that is joined denies", z)
		}
		wantLeft(t, s, of[0], int64(10*denies))
	}
}

// everyAlgorithm compares the built-in algorithms with the local store over a trace of costs.
func everyAlgorithm(t testing.TB, c *Config) {
	for _, a := range []algorithms.Algorithm{
		new(algorithms.FixedWindow), new(algorithms.SlidingLog), &algorithms.SlidingWindow{Buckets: 10}, new(algorithms.GCRA),
		&algorithms.TokenBucket{Burst: 25}, &algorithms.LeakyBucket{NoDelay: true},
	} {
		s, zone, wanted := c.New(t), counter(t, 40, a), counter(t, 40, a)
		local := &memory.Store{Clock: func() int64 { return hour * 1000 }}
		for n := range int64(30) {
			got, want := decide(t, s, ask(1+n*7%11, zone)), ask(1+n*7%11, wanted)
			local.Decide(t.Context(), want)
			a, b := &got.Zones[0], &want.Zones[0]
			if got.Admitted != want.Admitted || a.Results[0].Remaining != b.Results[0].Remaining {
				t.Fatalf("%s, check %d of cost %d: admitted %v, %d left, want %v, %d", zone.Kinds, n, a.Cost,
					got.Admitted, a.Results[0].Remaining, want.Admitted, b.Results[0].Remaining)
			}
		}
	}
}

// finish charges what a response has cost, also above the limit.
func finish(t testing.TB, c *Config) {
	s, zone := c.New(t), tenPerHour(t)
	check := decide(t, s, ask(1, zone))
	s.Finish(t.Context(), &check.Zones[0], 0)
	wantLeft(t, s, zone, 9)
	s.Finish(t.Context(), &check.Zones[0], 4)
	wantLeft(t, s, zone, 5)
	check = decide(t, s, ask(1, zone))
	s.Finish(t.Context(), &check.Zones[0], 20)
	wantLeft(t, s, zone, 0)
	wantAdmitted(t, "after a charge above the limit", decide(t, s, ask(1, zone)), false)
}

// notify says what was used before and after a decision, if a counter asks for it.
func notify(t testing.TB, c *Config) {
	s, zone := c.New(t), tenPerHour(t)
	zone.Notifies = true
	decide(t, s, ask(3, zone))
	check := decide(t, s, ask(4, zone))
	if got := check.Zones[0].Results[0].Used; got != [2]int64{3, 7} {
		t.Errorf("used %v, want 3 before and 7 after", got)
	}
}

// blocks blocks a key that a blocking rule denies, and not before, until it is reset or asked by
// the states alone.
func blocks(t testing.TB, c *Config) {
	s, zone := c.New(t), tenPerHour(t)
	zone.Blocks, zone.Blocked = []int64{2 * hour}, memory.NewBlocks(100)
	decide(t, s, ask(8, zone))
	check := ask(3, zone)
	check.Peek = true
	decide(t, s, check)
	wantAdmitted(t, "after a peek that was denied", decide(t, s, ask(1, zone)), true)
	check = decide(t, s, ask(3, zone))
	wantAdmitted(t, "above the limit", check, false)
	if b := check.Zones[0].Block; !b.Started || b.Span != 2*hour || b.Until < check.Now+hour {
		t.Errorf("%+v: want a block of two hours", b)
	}
	check = decide(t, s, ask(1, zone))
	wantAdmitted(t, "a blocked key", check, false)
	if z := &check.Zones[0]; !z.Blocked() || z.Results[0].Retry <= hour || z.Results[0].Retry > 2*hour {
		t.Errorf("%+v: want it blocked for the rest of two hours", z)
	}
	check = ask(1, zone)
	check.Zones[0].IgnoreBlock, check.Peek = true, true
	wantAdmitted(t, "the states of a blocked key", decide(t, s, check), true)
}

// instances shares the counts.
func instances(t testing.TB, c *Config) {
	a, b, zone := c.New(t), c.New(t), tenPerHour(t)
	decide(t, a, ask(6, zone))
	wantLeft(t, b, zone, 4)
	wantAdmitted(t, "another instance", decide(t, b, ask(5, zone)), false)
	wantAdmitted(t, "another instance", decide(t, b, ask(4, zone)), true)
	wantAdmitted(t, "the first instance", decide(t, a, ask(1, zone)), false)
}

// concurrent admits exactly the limit, however many ask at the same time.
func concurrent(t testing.TB, c *Config) {
	both, zone := []stores.Store{c.New(t), c.New(t)}, counter(t, 100, new(algorithms.SlidingWindow))
	var admitted atomic.Int64
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for range 25 {
				check := ask(1, zone)
				if both[w%2].Decide(t.Context(), check); check.Admitted {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != 100 {
		t.Errorf("%d of 200 requests admitted, want the limit of 100", n)
	}
}

// concurrentEnds ends what many requests hold at the same time, and charges each of them once.
func concurrentEnds(t testing.TB, c *Config) {
	const workers, each = 8, 25
	both, zone := []stores.Store{c.New(t), c.New(t)}, counter(t, 1000, new(algorithms.FixedWindow))
	zone.InFlight, zone.HoldCost = workers, true
	var denied atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for range each {
				check := ask(3, zone)
				if both[w%2].Decide(t.Context(), check); !check.Admitted {
					denied.Add(1)
				}
				both[w%2].Finish(t.Context(), &check.Zones[0], 2)
			}
		})
	}
	all.Wait()
	if n := denied.Load(); n > 0 {
		t.Errorf("%d requests denied, though each had a permit", n)
	}
	wantLeft(t, both[0], zone, 1000-workers*each*2)
}

// ownSlots counts more keys than a table of this size has room for: none is denied because of
// another one, and one that is not counted is said to be so.
func ownSlots(t testing.TB, c *Config) {
	const keys = 300
	s, zone := c.New(t), counter(t, 1, new(algorithms.FixedWindow))
	zone.OwnSlots, zone.Table = true, memory.NewTable(zone.Rules, keys/3)
	of := func(n uint64) *stores.Check {
		check := ask(1, zone)
		check.Zones[0].Key = stores.Key{Hi: n, Lo: client.Lo + 1} // beside the keys of other tests
		check.Zones[0].Tag = check.Zones[0].Key
		return check
	}
	for n := range uint64(keys) {
		first := decide(t, s, of(n))
		wantAdmitted(t, "the first of its key", first, true)
		if again := decide(t, s, of(n)); again.Admitted != first.Zones[0].Overflowed {
			t.Errorf("key %d, which is uncounted: %v: admitted again %v", n, first.Zones[0].Overflowed, again.Admitted)
		}
	}
}

// status says who the store is.
func status(t testing.TB, c *Config) {
	s, ok := c.New(t).(stores.Shared)
	if !ok {
		return // of a store in this process only nobody asks
	}
	decide(t, s, ask(1, tenPerHour(t)))
	first := s.Status()
	if first.Name == "" || !first.Up || len(first.Down) > 0 {
		t.Errorf("%+v of a store that decides: want its name, and that it is up", first)
	}
	if again := s.Status(); again.Name != first.Name || again.Place != first.Place || again.OnFailure != first.OnFailure || again.Lease != first.Lease || again.Clustered != first.Clustered {
		t.Errorf("%+v, then %+v: want what does not change", first, again)
	}
}

// reset clears a key and its block, on all instances, and leaves what requests hold.
func reset(t testing.TB, c *Config) {
	s, ok := c.New(t).(stores.Shared)
	if !ok {
		return
	}
	zone, other := tenPerHour(t), c.New(t)
	zone.Blocks, zone.Blocked, zone.InFlight = []int64{hour}, memory.NewBlocks(100), 1
	held := decide(t, s, ask(1, zone))
	wantAdmitted(t, "a second request in flight", decide(t, other, ask(1, zone)), false)
	wantAdmitted(t, "above the limit", decide(t, s, ask(10, zone)), false)
	if err := s.Reset(t.Context(), zone.Zone, []*stores.Counter{zone}, client); err != nil {
		t.Fatal(err)
	}
	check := decide(t, s, ask(1, zone))
	if z := &check.Zones[0]; z.Blocked() || !z.Full || z.Results[0].Remaining != 10 {
		t.Errorf("after a reset: %+v: want nothing used, no block, and the permit in use", z)
	}
	s.Finish(t.Context(), &held.Zones[0], 0)
	wantAdmitted(t, "after a reset, and the first request", decide(t, s, ask(10, zone)), true)
}
