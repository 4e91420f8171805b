package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// clockFleet is instances whose Redis has another clock, which the test sets.
type clockFleet struct {
	*fleet
	c    []*stores.Counter
	k    stores.Key
	skew int64        // by how much Redis' clock is ahead
	late *atomic.Bool // whether a call was late
}

// pass lets time pass. A call that was late may still ask for it.
func (f *clockFleet) pass(us int64) { atomic.AddInt64(&f.v.now, us) }

func (f *clockFleet) tick() {
	f.pass(1000)
	for _, s := range f.all {
		s.setTime(f.v.now + f.skew)
	}
}

// use makes n checks of cost 1 at an instance, a time apart.
func (f *clockFleet) use(i, n int, apart int64) (admitted int) {
	for range n {
		f.pass(apart)
		f.tick()
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: f.c[i], Subject: stores.Subject{Key: f.k, Tag: f.k}, Cost: 1}}}
		if f.all[i].Decide(context.Background(), check); check.Admitted {
			admitted++
		}
	}
	return admitted
}

// back ends an outage of all, in which Redis' clock was set, and has each pay what it owes.
func (f *clockFleet) back(step int64) {
	f.skew += step
	f.set(-1, noFault)
	f.pass(2 * rampLasts)
	for _, s := range f.all {
		f.tick()
		if s.heartbeat(context.Background()) != nil { // which tells the time
			f.late.Store(true)
		}
		s.payDebts(context.Background())
	}
}

// used returns what Redis has of the limit of 60.
func (f *clockFleet) used() int64 {
	f.tick()
	check := &stores.Check{Peek: true, Zones: []stores.ZoneCheck{{Counter: f.c[0], Subject: stores.Subject{Key: f.k, Tag: f.k}, Cost: 1}}}
	f.all[0].Decide(context.Background(), check)
	return 60 - check.Zones[0].Results[0].Remaining
}

// clockSpecs are rules of 60 in ten minutes or, of those that drain, in a day.
func clockSpecs() map[string]storekit.RuleSpec {
	sp := algorithms.Spec{Limit: 60, Window: 600_000_000, Cost: 1}
	slow := sp
	slow.Window = 24 * storekit.Hour
	return map[string]storekit.RuleSpec{
		"gcra":           {Alg: &algorithms.GCRA{}, Spec: slow},
		"leaky_bucket":   {Alg: &algorithms.LeakyBucket{NoDelay: true}, Spec: slow},
		"token_bucket":   {Alg: &algorithms.TokenBucket{Burst: 60}, Spec: slow},
		"fixed_window":   {Alg: &algorithms.FixedWindow{}, Spec: sp},
		"aligned":        {Alg: &algorithms.FixedWindow{Align: true}, Spec: slow},
		"sliding_window": {Alg: &algorithms.SlidingWindow{}, Spec: sp},
		"sliding_log":    {Alg: &algorithms.SlidingLog{}, Spec: sp},
		"calendar":       {Alg: &algorithms.Calendar{}, Spec: algorithms.Spec{Limit: 60, Period: algorithms.Month, Window: algorithms.Month.Longest(), Cost: 1}},
	}
}

// clockSteps are by how many microseconds a clock is set.
var clockSteps = []int64{-20_000_000, -6_000_000, -5_000_000, -1_500_000, -400_000, 400_000, 1_500_000, 6_000_000, 20_000_000}

// lateness notes calls that the machine was too busy to answer in time: what they carried counts
// neither as charged nor as owed.
type lateness struct {
	silent
	late *atomic.Bool
}

// Uncharged notes what nobody knows to be charged.
func (l lateness) Uncharged(string, stores.Uncharged, int64) { l.late.Store(true) }

func (l lateness) StoreError(_ string, f stores.Failure, _ error) {
	if f == stores.FailTimeout {
		l.late.Store(true)
	}
}

// drains says whether a step of the clock back costs a rule its own length, by which it drains later.
func drains(a algorithms.Algorithm) bool {
	switch a.(type) {
	case *algorithms.GCRA, *algorithms.TokenBucket, *algorithms.LeakyBucket:
		return true
	}
	return false
}

// round is oneRound without a call that was late.
func round(t *testing.T, srv *redistest.Server, zone string, spec storekit.RuleSpec, n int, outage, lost bool, step int64) (admitted int, used [2]int64) {
	t.Helper()
	const tries = 10
	for try := range tries {
		var late atomic.Bool
		admitted, used = oneRound(t, srv, fmt.Sprint(zone, "try", try), spec, n, outage, lost, step, &late)
		if !late.Load() {
			return admitted, used
		}
	}
	t.Fatalf("%s: a call was late in each of %d rounds", zone, tries)
	return 0, used
}

// oneRound has n instances use a key before Redis' clock is set, with an outage in which they admit by
// their shares or without, and after it. It returns what was admitted before that, and what Redis has
// then and in the end.
func oneRound(t *testing.T, srv *redistest.Server, zone string, spec storekit.RuleSpec, n int, outage, lost bool, step int64, late *atomic.Bool) (admitted int, used [2]int64) {
	t.Helper()
	f := &clockFleet{fleet: newFleet(t, srv, n, func(o *Options) { o.Timeout = 500 * time.Millisecond }), k: stores.Key{Hi: 1, Lo: 2}, late: late}
	for _, s := range f.all {
		s.Observe(lateness{late: late})
	}
	f.v.now = 1_700_000_000_000_000
	f.c = f.counters(t, zone, spec)
	for i := range n {
		admitted += f.use(i, 30/n, 100_000)
	}
	if outage {
		f.set(-1, faultRefused)
		for i := range n {
			admitted += f.use(i, 10/n, 100_000)
		}
	}
	if lost {
		f.v.flush(t)
	}
	f.back(step)
	used[0] = f.used()
	for i := range 6 {
		f.use(i%n, 1, 100_000)
	}
	used[1] = f.used()
	return admitted, used
}

// TestClockSetInAnOutage sets Redis' clock during an outage, or without one, as a failover to another
// host does, which has its data or not. What was known and what is owed count once.
func TestClockSetInAnOutage(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range clockSpecs() {
		for n := 1; n <= 3; n++ {
			for _, how := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
				outage, lost := how[0], how[1]
				zone := fmt.Sprint("clock-", name, n, how)
				admitted, unset := round(t, srv, zone, spec, n, outage, lost, 0)
				if want := [2]int64{int64(admitted), int64(admitted) + 6}; unset != want && !lost {
					t.Errorf("%s: %d used, want %d", zone, unset, want)
				}
				for _, step := range clockSteps {
					_, used := round(t, srv, fmt.Sprint(zone, step), spec, n, outage, lost, step)
					for i := range used {
						most, least := unset[i], unset[i]
						if drains(spec.Alg) {
							most++
						} else if lost { // the first checks of each instance may not be known to others
							least -= int64(n)
						}
						if used[i] > most || used[i] < least {
							t.Errorf("%s, set by %d ms: %d used, want %d", zone, step/1000, used, unset)
							break
						}
					}
				}
			}
		}
	}
}
