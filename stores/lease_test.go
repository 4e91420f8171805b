package stores

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
)

const testLease = 50_000

// leasingFleet is instances that lease, on one clock.
type leasingFleet struct {
	*virtual
	t   *testing.T
	all []*Shared
}

func newLeasingFleet(t *testing.T, n int) *leasingFleet {
	t.Helper()
	srv := redistest.Start(t)
	f := &leasingFleet{&virtual{client: srv.Client(), now: hour}, t, nil}
	f.all = newLeasing(t, srv, f.virtual, n)
	for _, s := range f.all {
		s.Watch(deaf{})
	}
	return f
}

// counter is a zone whose parts may be leased.
func (f *leasingFleet) counter(name string, specs ...ruleSpec) *Counter {
	for i := range specs {
		specs[i].spec.Lease = testLease
	}
	c := newTestCounter(f.t, name, 0, false, nil, specs...)
	c.Table = NewTable(c.Rules, true, 100)
	lend(f.all, c, testLease)
	return c
}

// ask asks an instance, and says whether that came to Redis.
func (f *leasingFleet) ask(s *Shared, a *Ask) (asked bool) {
	f.conn = s.conn
	f.tick()
	s.Decide(context.Background(), a)
	return f.asked()
}

// heat asks often enough for a key to be leased something.
func (f *leasingFleet) heat(s *Shared, counters ...*Counter) {
	f.t.Helper()
	for range 400 {
		f.now += 250
		a := items(1, counters...)
		f.ask(s, a)
		if !a.Admitted {
			f.t.Fatal("denied while the key was made hot")
		}
	}
	if s.leases.at(&items(1, counters...).Items[0]).left(f.now) == 0 {
		f.t.Fatal("a hot key has nothing in hand")
	}
}

func perSecond(limit int64) ruleSpec {
	return ruleSpec{&algorithms.GCRA{}, algorithms.Spec{Limit: limit, Window: 1_000_000, Cost: 1}}
}

// TestSaturatedKeyIsLeased has three instances ask for more than twice what a limit
// allows for two seconds. What passes keeps the bound and is at least nine tenths
// of the limit, and hardly any request comes to Redis.
func TestSaturatedKeyIsLeased(t *testing.T) {
	sp := algorithms.Spec{Limit: 10_000, Window: 1_000_000, Cost: 1}
	for _, v := range []struct {
		victim
		name string
		part float64 // of the limit that such a rule lets pass of steady requests
	}{
		{victim{ruleSpec{&algorithms.GCRA{}, sp}, 20_000}, "gcra", 1},
		{victim{ruleSpec{&algorithms.FixedWindow{}, sp}, 20_000}, "fixed_window", 1},
		{victim{ruleSpec{&algorithms.SlidingWindow{}, sp}, 10_000}, "sliding_window", 10. / 11},
		{victim{ruleSpec{&algorithms.SlidingLog{}, sp}, 10_000}, "sliding_log", 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			f := newLeasingFleet(t, 3)
			c := f.counter("hot", v.spec)
			for _, s := range f.all {
				s.denials = new(denials)
			}
			const requests, apart = 48_000, 42 // microseconds
			var charges []charge
			begin, calls, passed := f.now, 0, [3]int{}
			for i := range requests {
				f.now = begin + int64(i)*apart
				a := items(1, c)
				if f.ask(f.all[i%3], a) && f.now-begin > 2*testLease { // by then it is known to be hot
					calls++
				}
				if a.Admitted {
					charges = append(charges, charge{f.now, 1})
					passed[i%3]++
				} else if a.Items[0].Results[0].Retry <= 0 || a.Items[0].Results[0].Remaining < 0 {
					t.Fatalf("denied with %+v", a.Items[0].Results[0])
				}
			}
			t.Logf("%d of %d passed (%v), %d calls", len(charges), requests, passed, calls)
			if worst := worstWindow(charges, sp.Window); worst > v.bound {
				t.Errorf("%d in one window, bound %d", worst, v.bound)
			}
			if least := v.part * 0.9 * requests * apart / 1e6 * 10_000; float64(len(charges)) < least {
				t.Errorf("%d passed, want at least %.0f", len(charges), least)
			}
			if calls*50 > requests {
				t.Errorf("%d calls for %d requests, want at most one in 50", calls, requests)
			}
			for i, n := range passed {
				if n*6 < len(charges) {
					t.Errorf("instance %d let %d of %d pass: the others starve it", i, n, len(charges))
				}
			}
			f.checkCounts(f.all)
		})
	}
}

// checkCounts sees that what was spent was granted.
func (f *leasingFleet) checkCounts(all []*Shared) {
	f.t.Helper()
	for i, s := range all {
		if n, _ := s.Leases(); n.Times == 0 || n.Spent == 0 || n.Spent > n.Granted {
			f.t.Errorf("instance %d: %+v", i, n)
		}
	}
}

// TestColdKeyIsNotLeased asks for a key now and then, and for one whose limit is
// low: every request comes to Redis.
func TestColdKeyIsNotLeased(t *testing.T) {
	f := newLeasingFleet(t, 1)
	cold := f.counter("cold", perSecond(10_000))
	low := f.counter("low", perSecond(20))
	for i := range 200 {
		f.now += 20_000
		if a := items(1, cold); !f.ask(f.all[0], a) || !a.Admitted {
			t.Fatalf("request %d: admitted %v without asking", i, a.Admitted)
		}
	}
	for i := range 200 {
		f.now += 1000
		if !f.ask(f.all[0], items(1, low)) {
			t.Fatalf("request %d was decided without asking", i)
		}
	}
	if n, _ := f.all[0].Leases(); n.Times != 0 {
		t.Errorf("%d leases", n.Times)
	}
}

// TestLeaseEnds spends a lease for as long as it lasts, and no longer, also while
// Redis is away.
func TestLeaseEnds(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, c := f.all[0], f.counter("z", perSecond(1_000_000))
	f.heat(s, c)
	x := s.leases.at(&items(1, c).Items[0])
	end := x.parts[1].end
	for s.breaker.success(); ; {
		s.fail(errors.New("gone"))
		if s.breaker.open.Load() {
			break
		}
	}
	f.now = end - 1
	if a := items(1, c); f.ask(s, a) || !a.Admitted || a.Mode != ModeShared {
		t.Errorf("before its end: admitted %v in mode %v", a.Admitted, a.Mode)
	}
	f.now = end
	if a := items(1, c); f.ask(s, a) || a.Mode != ModeAlone {
		t.Errorf("at its end: mode %v, want to go on alone", a.Mode)
	}
}

// TestLeasesAreForgotten changes, with something in hand, what it depends on.
func TestLeasesAreForgotten(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, c := f.all[0], f.counter("z", perSecond(1_000_000))
	for name, change := range map[string]func(){
		"reset":      func() { s.Drop([]*Counter{c}, Key{1, 1}) },
		"connection": func() { s.conn.links.opened.Add(1) },
		"rules":      func() { c = f.counter("z", perSecond(900_000)) },
	} {
		f.heat(s, c)
		if a := items(1, c); f.ask(s, a) || !a.Admitted {
			t.Errorf("%s: before, admitted %v", name, a.Admitted)
		}
		if change(); !f.ask(s, items(1, c)) {
			t.Errorf("%s: what was in hand is spent", name)
		}
		f.now += hour
	}
}

// TestLeaseOfSomeZones asks for two zones of which one is in hand: Redis is asked
// for the other, and if that denies, nothing was spent.
func TestLeaseOfSomeZones(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, hot := f.all[0], f.counter("hot", perSecond(1_000_000))
	few := newTestCounter(t, "few", 0, false, nil, ruleSpec{&algorithms.FixedWindow{}, algorithms.Spec{Limit: 3, Window: hour, Cost: 1}})
	f.heat(s, hot)
	left := func() int64 { return s.leases.at(&items(1, hot).Items[0]).left(f.now) }
	for i := range 6 {
		before := left()
		a := items(1, hot, few)
		asked := f.ask(s, a)
		if a.Admitted != (i < 3) || !asked {
			t.Fatalf("request %d: admitted %v, asked %v", i, a.Admitted, asked)
		}
		spent := before - left()
		if want := map[bool]int64{true: 1}[a.Admitted]; spent != want || a.Items[0].Charged != a.Admitted || !a.Items[0].Admits {
			t.Errorf("request %d: %d spent of the hot zone, want %d; %+v", i, spent, want, a.Items[0])
		}
		if a.Items[1].Charged != a.Admitted || a.Items[1].Admits != a.Admitted {
			t.Errorf("request %d: the other zone: %+v", i, a.Items[1])
		}
	}
}

// TestLeaseOfAllZones asks for two hot zones: both are leased, and few requests
// come to Redis.
func TestLeaseOfAllZones(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s := f.all[0]
	one, two := f.counter("one", perSecond(1_000_000)), f.counter("two", perSecond(2_000_000))
	f.heat(s, one, two)
	calls := 0
	for range 1000 {
		f.now += 250
		a := items(1, one, two)
		if f.ask(s, a) {
			calls++
		}
		if !a.Admitted || !a.Items[0].Charged || !a.Items[1].Charged {
			t.Fatalf("admitted %v: %+v", a.Admitted, a.Items)
		}
	}
	if calls == 0 || calls > 50 {
		t.Errorf("%d calls for 1000 requests", calls)
	}
}

// TestLeaseAcrossStores holds a cost in hand until another store has decided. If
// that denies, it is put back.
func TestLeaseAcrossStores(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, hot := f.all[0], f.counter("hot", perSecond(1_000_000))
	f.heat(s, hot)
	local := &Local{Clock: f.clock}
	few := tenAnHour(t, "few", false)
	left := func() int64 { return s.leases.at(&items(1, hot).Items[0]).left(f.now) }
	before := left()
	for i := range int64(15) {
		a := items(1, hot, few)
		f.conn = s.conn
		f.tick()
		Across(context.Background(), a, []Store{s, local})
		if a.Admitted != (i < 10) || f.asked() {
			t.Fatalf("request %d: admitted %v, asked %v", i, a.Admitted, f.asked())
		}
	}
	if spent := before - left(); spent != 10 {
		t.Errorf("%d spent, want 10", spent)
	}
}

// TestLeaseLooks looks at a leased key: Redis is asked, and nothing is spent.
func TestLeaseLooks(t *testing.T) {
	f := newLeasingFleet(t, 1)
	s, c := f.all[0], f.counter("z", perSecond(1_000_000))
	f.heat(s, c)
	before := s.leases.at(&items(1, c).Items[0]).left(f.now)
	a := items(1, c)
	a.Look = true
	if !f.ask(s, a) || s.leases.at(&items(1, c).Items[0]).left(f.now) != before {
		t.Error("a look was answered from what is in hand")
	}
	if lease := (&Shared{o: SharedOptions{Lease: 50 * time.Millisecond}}).Lease(); lease != testLease {
		t.Errorf("a lease of %d", lease)
	}
}

// TestLeaseKeepsWholeStepsBack: a bucket that is refilled step by step keeps back
// what all steps give that may begin while a lease lasts.
func TestLeaseKeepsWholeStepsBack(t *testing.T) {
	for lease, left := range map[time.Duration]int64{
		0: 100, time.Millisecond: 90, 50 * time.Millisecond: 90, 100 * time.Millisecond: 90, 101 * time.Millisecond: 80,
	} {
		c := newTestCounter(t, "z", 0, false, nil, ruleSpec{
			&algorithms.TokenBucket{Step: caddy.Duration(100 * time.Millisecond)},
			algorithms.Spec{Limit: 100, Window: 1_000_000, Cost: 1, Lease: lease.Microseconds()},
		})
		if got, _ := c.Rules[0].Numbers(zeros(c.Rules[0].Words()), hour); got != left {
			t.Errorf("lease %v: %d left of an unused bucket, want %d", lease, got, left)
		}
	}
}
