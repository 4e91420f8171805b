// Package storetest tests a store of another module as this module tests its own: what is charged
// and when, what requests hold, blocks, and decisions over several stores. docs/internals/new-store.md
// explains what a store has to do.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Config{
//			New: func(t testing.TB) stores.Store { ... },
//		})
//	}
package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// Config describes a store to test.
type Config struct {
	// New returns an instance of the store, with the counts that all instances have. It is
	// closed at the end of the test.
	New func(t testing.TB) stores.Store
}

// tests are all tests of a store, by the names of the subtests.
var tests = map[string]func(t testing.TB, c *Config){
	"limit": limit, "all or nothing": allOrNothing, "peek": peek, "shadow": shadow, "joined": joined,
	"algorithms": everyAlgorithm, "finish": finish, "notify": notify, "blocks": blocks,
	"in flight": inFlight, "lingers": lingers, "held cost": heldCost, "reserve": reserve,
	"instances": instances, "concurrent": concurrent, "concurrent ends": concurrentEnds, "own slots": ownSlots,
	"several keys": severalKeys, "concurrent keys": concurrentKeys,
	"status": status, "reset": reset,
	"across denied": acrossDenied, "across admitted": acrossAdmitted, "across peek": acrossPeek, "across shadow": acrossShadow,
	"across block": acrossBlock, "across queue": acrossQueue,
}

// Run runs all tests of a store, as subtests.
func Run(t *testing.T, c Config) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, &c) })
	}
}

// hour is the window of most rules, in microseconds: nothing is refilled while a test runs.
const hour = 3_600_000_000

// zones numbers the zones, so that no test counts what another one has.
var zones atomic.Int64

// counter returns a counter of a zone of its own with a limit for each algorithm, per hour.
func counter(t testing.TB, limit int64, of ...algorithms.Algorithm) *stores.Counter {
	t.Helper()
	c := &stores.Counter{Terms: stores.Terms{Zone: fmt.Sprint("storetest", zones.Add(1))}}
	for _, a := range of {
		spec := algorithms.Spec{Limit: limit, Window: hour, Cost: 1, MaxTurn: hour, Overdraws: true}
		if _, queues := a.(*algorithms.LeakyBucket); queues {
			spec.Overdraws = false
		}
		r, err := a.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		c.Rules = append(c.Rules, r)
		c.Algorithms = append(c.Algorithms, a)
		c.Kinds += "." + a.Kind()
	}
	c.Split = func(int64) []algorithms.Rule { return c.Rules }
	c.Table = memory.NewTable(c.Rules, 1000)
	return c
}

// tenPerHour returns a counter of 10 in an hour.
func tenPerHour(t testing.TB) *stores.Counter { return counter(t, 10, new(algorithms.FixedWindow)) }

// client is the key of most checks.
var client = stores.Key{Hi: 1, Lo: 2}

// ask returns a check of one key in the zones of counters.
func ask(cost int64, of ...*stores.Counter) *stores.Check {
	check := new(stores.Check)
	for _, c := range of {
		check.Zones = append(check.Zones, stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: client, Tag: client}, Cost: cost, WantsMore: true})
	}
	return check
}

// seeing sets SeesHeld of a check: requests hold cost of its keys, though the counters do not ask for it.
func seeing(check *stores.Check) *stores.Check {
	for i := range check.Zones {
		check.Zones[i].SeesHeld = true
	}
	return check
}

// decide decides a check, which someone must.
func decide(t testing.TB, s stores.Store, check *stores.Check) *stores.Check {
	t.Helper()
	if s.Decide(t.Context(), check); check.Mode > stores.ModeShared {
		t.Fatalf("decided by %v, want it decided by the store", check.Mode)
	}
	return check
}

// wantLeft checks how much the client has left of a counter, seen by an instance.
func wantLeft(t testing.TB, s stores.Store, c *stores.Counter, want int64) {
	t.Helper()
	wantLeftOf(t, s, c, client, want)
}

// wantLeftOf checks how much a key has left of a counter, seen by an instance.
func wantLeftOf(t testing.TB, s stores.Store, c *stores.Counter, k stores.Key, want int64) {
	t.Helper()
	z := seeing(ask(1, c)).Zones[0]
	z.Key, z.Tag = k, k
	if stores.Peek(t.Context(), s, &z); len(z.Results) != len(c.Rules) {
		t.Fatalf("a peek has %d results, want %d", len(z.Results), len(c.Rules))
	}
	for i := range z.Results {
		if got := z.Results[i].Remaining; got != want {
			t.Errorf("%d left of rule %d, want %d", got, i, want)
		}
	}
}

// wantAdmitted checks whether a check was admitted.
func wantAdmitted(t testing.TB, what string, check *stores.Check, want bool) {
	t.Helper()
	if check.Admitted != want {
		t.Errorf("%s: admitted %v, want %v", what, check.Admitted, want)
	}
}
