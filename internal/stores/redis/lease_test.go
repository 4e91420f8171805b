package redis

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// testLease is the duration of a lease, in microseconds.
const testLease = 50_000

// leasingFleet is several instances with leases, on one virtual clock.
type leasingFleet struct {
	*virtual
	t   *testing.T
	all []*Store
}

func newLeasingFleet(t *testing.T, n int) *leasingFleet {
	t.Helper()
	srv := redistest.Start(t)
	f := &leasingFleet{&virtual{client: srv.Client(), now: storekit.Hour}, t, nil}
	f.all = newLeasing(t, srv, f.virtual, n)
	for _, s := range f.all {
		s.Observe(silent{})
	}
	return f
}

// counter returns a counter of a zone whose limits may be leased.
func (f *leasingFleet) counter(name string, specs ...storekit.RuleSpec) *stores.Counter {
	for i := range specs {
		specs[i].Spec.Lease = testLease
	}
	c := kit.NewTestCounter(f.t, name, 0, false, nil, specs...)
	c.Table = memory.NewTable(c.Rules, 100)
	enableLeases(f.all, c, testLease)
	return c
}

// decide decides a check at an instance, and says whether that called Redis.
func (f *leasingFleet) decide(s *Store, check *stores.Check) (called bool) {
	f.conn = s.conn
	f.tick()
	s.Decide(context.Background(), check)
	return f.called()
}

// makeHot checks a key so often that the instance leases part of its limit.
func (f *leasingFleet) makeHot(s *Store, counters ...*stores.Counter) {
	f.t.Helper()
	for range 400 {
		f.now += 250
		check := storekit.CheckOf(1, counters...)
		f.decide(s, check)
		if !check.Admitted {
			f.t.Fatal("denied while the key becomes hot")
		}
	}
	if s.leaseLeft(&storekit.CheckOf(1, counters...).Zones[0], f.now) == 0 {
		f.t.Fatal("a hot key has no lease")
	}
}

func perSecond(limit int64) storekit.RuleSpec {
	return storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: limit, Window: 1_000_000, Cost: 1}}
}

// TestSaturatedKeyIsLeased has three instances check more than twice the limit for
// two seconds. They admit at most the bound and at least nine tenths of the limit,
// with few calls.
func TestSaturatedKeyIsLeased(t *testing.T) {
	sp := algorithms.Spec{Limit: 10_000, Window: 1_000_000, Cost: 1}
	for _, v := range []struct {
		storekit.Victim
		name string
		part float64 // of the limit that the rule admits of evenly spaced requests
	}{
		{storekit.Victim{Spec: storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: sp}, Bound: 20_000}, "gcra", 1},
		{storekit.Victim{Spec: storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp}, Bound: 20_000}, "fixed_window", 1},
		{storekit.Victim{Spec: storekit.RuleSpec{Alg: &algorithms.SlidingWindow{}, Spec: sp}, Bound: 10_000}, "sliding_window", 10. / 11},
		{storekit.Victim{Spec: storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: sp}, Bound: 10_000}, "sliding_log", 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			f := newLeasingFleet(t, 3)
			c := f.counter("hot", v.Spec)
			for _, s := range f.all {
				s.recall()
			}
			const requests, gap = 48_000, 42 // microseconds
			var charges []storekit.Charge
			start, calls, admitted := f.now, 0, [3]int{}
			for i := range requests {
				f.now = start + int64(i)*gap
				check := storekit.CheckOf(1, c)
				if f.decide(f.all[i%3], check) && f.now-start > 2*testLease { // the key is hot by then
					calls++
				}
				if check.Admitted {
					charges = append(charges, storekit.Charge{At: f.now, Cost: 1})
					admitted[i%3]++
				} else if check.Zones[0].Results[0].Retry <= 0 || check.Zones[0].Results[0].Remaining < 0 {
					t.Fatalf("denied with %+v", check.Zones[0].Results[0])
				}
			}
			t.Logf("%d of %d admitted (%v), %d calls", len(charges), requests, admitted, calls)
			if worst := storekit.WorstWindow(charges, sp.Window); worst > v.Bound {
				t.Errorf("%d in one window, bound %d", worst, v.Bound)
			}
			if least := v.part * 0.9 * requests * gap / 1e6 * 10_000; float64(len(charges)) < least {
				t.Errorf("%d admitted, want at least %.0f", len(charges), least)
			}
			if calls*50 > requests {
				t.Errorf("%d calls for %d requests, want at most one in 50", calls, requests)
			}
			for i, n := range admitted {
				if n*6 < len(charges) {
					t.Errorf("instance %d admitted %d of %d, want at least a sixth", i, n, len(charges))
				}
			}
			f.checkCounts(f.all)
		})
	}
}

// checkCounts fails the test if an instance spent more than it was granted, or
// nothing.
func (f *leasingFleet) checkCounts(all []*Store) {
	f.t.Helper()
	for i, s := range all {
		if n, _ := s.LeaseStats(); n.Times == 0 || n.Spent == 0 || n.Spent > n.Granted {
			f.t.Errorf("instance %d: %+v", i, n)
		}
	}
}

// TestColdKeyIsNotLeased checks a key that is not hot, and one with a low limit:
// every check leads to a call.
func TestColdKeyIsNotLeased(t *testing.T) {
	f := newLeasingFleet(t, 1)
	cold := f.counter("cold", perSecond(10_000))
	low := f.counter("low", perSecond(20))
	for i := range 200 {
		f.now += 20_000
		if check := storekit.CheckOf(1, cold); !f.decide(f.all[0], check) || !check.Admitted {
			t.Fatalf("request %d: admitted %v, or decided without a call", i, check.Admitted)
		}
	}
	for i := range 200 {
		f.now += 1000
		if !f.decide(f.all[0], storekit.CheckOf(1, low)) {
			t.Fatalf("request %d was decided without a call", i)
		}
	}
	if n, _ := f.all[0].LeaseStats(); n.Times != 0 {
		t.Errorf("%d leases, want none", n.Times)
	}
}

// TestLeaseEnds spends a lease until it expires, and not afterwards, while Redis is
// unavailable.
func TestLeaseEnds(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, c := f.all[0], f.counter("z", perSecond(1_000_000))
	f.makeHot(s, c)
	x := s.leasing.leases.at(&storekit.CheckOf(1, c).Zones[0])
	end := x.parts[1].end
	for s.conn.nodes.first.breaker.success(); ; {
		s.failCall()
		if s.isDown() {
			break
		}
	}
	f.now = end - 1
	if check := storekit.CheckOf(1, c); f.decide(s, check) || !check.Admitted || check.Mode != stores.ModeShared {
		t.Errorf("before the end of the lease: admitted %v in mode %v", check.Admitted, check.Mode)
	}
	f.now = end
	if check := storekit.CheckOf(1, c); f.decide(s, check) || check.Mode != stores.ModeFallback {
		t.Errorf("at the end of the lease: mode %v, want the fallback", check.Mode)
	}
}

// TestLeasesAreForgotten changes what the validity of a lease depends on. Redis
// decides the next check.
func TestLeasesAreForgotten(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, c := f.all[0], f.counter("z", perSecond(1_000_000))
	for name, change := range map[string]func(){
		"reset":      func() { s.ResetLocal([]*stores.Counter{c}, stores.Key{Hi: 1, Lo: 1}) },
		"connection": s.reconnect,
		"rules":      func() { c = f.counter("z", perSecond(900_000)) },
	} {
		f.makeHot(s, c)
		if check := storekit.CheckOf(1, c); f.decide(s, check) || !check.Admitted {
			t.Errorf("%s: admitted %v before the change, want it admitted by the lease", name, check.Admitted)
		}
		if change(); !f.decide(s, storekit.CheckOf(1, c)) {
			t.Errorf("%s: the lease is still spent", name)
		}
		f.now += storekit.Hour
	}
}

// TestLeaseOfSomeZones checks two zones, one of which has a lease. Redis decides the
// other, and if that denies, nothing of the lease is spent.
func TestLeaseOfSomeZones(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, hot := f.all[0], f.counter("hot", perSecond(1_000_000))
	few := kit.NewTestCounter(t, "few", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 3, Window: storekit.Hour, Cost: 1}})
	f.makeHot(s, hot)
	left := func() int64 { return s.leaseLeft(&storekit.CheckOf(1, hot).Zones[0], f.now) }
	renewed := 0
	for i := range 6 {
		before := left()
		check := storekit.CheckOf(1, hot, few)
		called := f.decide(s, check)
		if check.Admitted != (i < 3) || !called {
			t.Fatalf("request %d: admitted %v, called Redis %v", i, check.Admitted, called)
		}
		spent, want := before-left(), map[bool]int64{true: 1}[check.Admitted]
		if spent < 0 && renewed == 0 { // at a random time, and not again soon
			renewed, spent = 1, want
		}
		if spent != want || check.Zones[0].Charged != check.Admitted || !check.Zones[0].Admits {
			t.Errorf("request %d: the hot zone spent %d, want %d; %+v", i, spent, want, check.Zones[0])
		}
		if check.Zones[1].Charged != check.Admitted || check.Zones[1].Admits != check.Admitted {
			t.Errorf("request %d: the other zone: %+v", i, check.Zones[1])
		}
	}
}

// TestLeaseLeavesWhatIsHeld requests a lease of a key of which another request holds most, for the
// sake of another store.
func TestLeaseLeavesWhatIsHeld(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, hot := f.all[0], f.counter("hot", storekit.RuleSpec{Alg: new(algorithms.SlidingWindow), Spec: algorithms.Spec{Limit: 1000, Window: storekit.Hour, Cost: 1}})
	reserved := storekit.CheckOf(900, hot)
	reserved.Zones[0].Reserve = true
	f.decide(s, reserved)
	check := storekit.CheckOf(1, hot)
	z := &check.Zones[0]
	z.SeesHeld, z.Lease = true, stores.LeaseRequest{Want: 500, Granted: -1}
	s.decider.decide(context.Background(), check)
	if n := z.Lease.Granted; !reserved.Admitted || !check.Admitted || n < 1 || 900+1+2*n > 1000 {
		t.Errorf("admitted %v beside %v, and %d are leased of 99 that are left, want half at most", check.Admitted, reserved.Admitted, n)
	}
}

// TestLeaseOfAllZones checks two hot zones: both have leases, and few checks lead to
// a call.
func TestLeaseOfAllZones(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s := f.all[0]
	one, two := f.counter("one", perSecond(1_000_000)), f.counter("two", perSecond(2_000_000))
	f.makeHot(s, one, two)
	calls := 0
	for range 1000 {
		f.now += 250
		check := storekit.CheckOf(1, one, two)
		if f.decide(s, check) {
			calls++
		}
		if !check.Admitted || !check.Zones[0].Charged || !check.Zones[1].Charged {
			t.Fatalf("admitted %v: %+v", check.Admitted, check.Zones)
		}
	}
	if calls == 0 || calls > 50 {
		t.Errorf("%d calls for 1000 requests, want 1 to 50", calls)
	}
}

// TestLeaseAcrossStores reserves leased cost until another store has decided. If
// that denies, the cost is returned to the lease.
func TestLeaseAcrossStores(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, hot := f.all[0], f.counter("hot", perSecond(1_000_000))
	f.makeHot(s, hot)
	local := &memory.Store{Clock: f.clock}
	few := kit.TenPerHour(t, "few", false)
	left := func() int64 { return s.leaseLeft(&storekit.CheckOf(1, hot).Zones[0], f.now) }
	before := left()
	for i := range int64(15) {
		check := storekit.CheckOf(1, hot, few)
		f.conn = s.conn
		f.tick()
		stores.Across(context.Background(), check, []stores.Store{s, local})
		if check.Admitted != (i < 10) || f.called() {
			t.Fatalf("request %d: admitted %v, called Redis %v", i, check.Admitted, f.called())
		}
	}
	if spent := before - left(); spent != 10 {
		t.Errorf("%d spent, want 10", spent)
	}
}

// TestLeasePeeks peeks at a key with a lease: Redis decides, and nothing is spent.
func TestLeasePeeks(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, c := f.all[0], f.counter("z", perSecond(1_000_000))
	f.makeHot(s, c)
	before := s.leaseLeft(&storekit.CheckOf(1, c).Zones[0], f.now)
	check := storekit.CheckOf(1, c)
	check.Peek = true
	if !f.decide(s, check) || s.leaseLeft(&storekit.CheckOf(1, c).Zones[0], f.now) != before {
		t.Error("a peek was decided by the lease, or spent it")
	}
}

// TestLeaseKeepsWholeStepsBack checks that a token_bucket with steps keeps back the
// tokens of all steps that may begin during a lease.
func TestLeaseKeepsWholeStepsBack(t *testing.T) {
	for lease, left := range map[time.Duration]int64{
		0: 100, time.Millisecond: 90, 50 * time.Millisecond: 90, 100 * time.Millisecond: 90, 101 * time.Millisecond: 80,
	} {
		c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{
			Alg:  &algorithms.TokenBucket{Step: caddy.Duration(100 * time.Millisecond)},
			Spec: algorithms.Spec{Limit: 100, Window: 1_000_000, Cost: 1, Lease: lease.Microseconds()},
		})
		if got, _ := c.Rules[0].Numbers(make(algorithms.State, c.Rules[0].Words()), storekit.Hour); got != left {
			t.Errorf("lease %v: %d left of an unused bucket, want %d", lease, got, left)
		}
	}
}
