package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestPutBackStampsKeepTheirAge puts many timestamps of a log back that an instance with a
// later and smaller snapshot does not know. They leave the window when they would have, and
// not when that instance was told of them.
func TestPutBackStampsKeepTheirAge(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 2)
	start := f.v.now
	c := f.counters(t, "age", lostSpecs()["sliding_log"])
	k := stores.Key{Hi: 1, Lo: 2}
	f.decide(0, c[0], k, 50)
	f.v.flush(t)
	f.v.now += 600_000_000
	f.decide(1, c[1], k, 1)
	for range 2 { // the first finds that there is less than it knows
		f.v.now += 1_000_000
		f.decide(0, c[0], k, 1)
	}
	for range 2 {
		f.v.now += 1_000_000
		f.decide(1, c[1], k, 1)
	}
	f.v.now = start + storekit.Hour + 1
	// Of the check after the loss and the two that followed it, the maximum may hold one.
	if left := f.decide(0, c[0], k, 1).Zones[0].Results[0].Remaining; left < 100-5-1 {
		t.Errorf("%d of 100 left after 5 and 1, when 50 that were put back have left the window", left)
	}
}

// TestDebtStampsKeepTheirAge charges a debt to a log, which is older than what another
// instance was last told of the log. It leaves the window when it would have.
func TestDebtStampsKeepTheirAge(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 2)
	start := f.v.now
	c := f.counters(t, "debt-age", lostSpecs()["sliding_log"])
	k := stores.Key{Hi: 1, Lo: 2}
	f.set(0, faultRefused)
	f.decide(0, c[0], k, 40)
	f.v.now += 600_000_000
	f.decide(1, c[1], k, 1)
	f.set(0, noFault)
	f.v.now += 2 * rampLasts
	f.decide(0, c[0], k, 1)
	for range 2 {
		f.v.now += 1_000_000
		f.decide(1, c[1], k, 1)
	}
	f.v.now = start + storekit.Hour + 1
	if left := f.decide(0, c[0], k, 1).Zones[0].Results[0].Remaining; left != 100-4-1 {
		t.Errorf("%d of 100 left after 4 and 1, when a debt of 40 has left the window", left)
	}
}

// TestGroupsOfADebtDoNotLeaveEarly charges a debt to a log whose timestamps are rounded in
// groups. None leaves the window before it would have without the outage.
func TestGroupsOfADebtDoNotLeaveEarly(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 1)
	start := f.v.now
	spec := lostSpecs()["sliding_log"]
	spec.Spec.Limit = 1000
	c := f.counters(t, "groups", spec)
	k := stores.Key{Hi: 1, Lo: 2}
	const owed = 5 * 64 // in groups of 5
	f.set(0, faultRefused)
	for range owed {
		f.v.now += 1_000_000
		f.decide(0, c[0], k, 1)
	}
	f.set(0, noFault)
	f.v.now += 2 * rampLasts
	f.decide(0, c[0], k, 1)
	for gone := range int64(owed) {
		f.v.now = start + storekit.Hour + gone*1_000_000 + 500_000
		used := 1 + owed - gone
		check := &stores.Check{Peek: true, Zones: []stores.ZoneCheck{{Counter: c[0], Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
		f.v.tick()
		f.all[0].Decide(t.Context(), check)
		if left := 1000 - check.Zones[0].Results[0].Remaining; left < used || left > used+4 {
			t.Fatalf("%d count when %d of %d have left the window, want %d and less than a group more", left, gone, owed, used)
		}
	}
}

// TestLeasedStampsArePutBack leases part of the limit of a log and spends it late, then Redis
// forgets the log. What was leased still counts in the window of when it was spent.
func TestLeasedStampsArePutBack(t *testing.T) {
	f := newLeasingFleet(t, 1)
	const limit = 1000
	c := f.counter("leased", storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: limit, Window: 1_000_000, Cost: 1}})
	s, start, z := f.all[0], f.now, &storekit.CheckOf(1, c).Zones[0]
	f.decide(s, storekit.CheckOf(1, c)) // connects
	requestMostLease(s, z, limit)
	f.decide(s, storekit.CheckOf(1, c))
	s.leasing.leases.at(z).rate = 0 // no lease follows
	f.now += testLease * 9 / 10
	spent := 0
	for check := storekit.CheckOf(1, c); !f.decide(s, check); check = storekit.CheckOf(1, c) {
		spent++
	}
	if spent == 0 {
		t.Fatal("nothing was leased")
	}
	f.flush(t)
	f.now = start + 1_000_000 + 1
	check := storekit.CheckOf(1, c)
	f.decide(s, check)
	if left := check.Zones[0].Results[0].Remaining; left > int64(limit-spent-1) {
		t.Errorf("%d of %d left in a window in which %d of a lease were spent, and 1", left, limit, spent)
	}
}

// TestLeasesOfALogArePutBack leases parts of a log of which an instance knows as many runs as a
// snapshot has, and Redis forgets the log. What is spent of the leases afterwards counts until
// the end of a window that begins with it.
func TestLeasesOfALogArePutBack(t *testing.T) {
	const limit, window, gap = 100, 3_000_000, 10_000
	f := newLeasingFleet(t, 1)
	for leases := range 8 {
		c := f.counter(fmt.Sprint("leases", leases), storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: limit, Window: window, Cost: 1}})
		s, z := f.all[0], &storekit.CheckOf(1, c).Zones[0]
		for range 8 {
			f.decide(s, storekit.CheckOf(10, c))
			f.now += 4 * testLease // too slow for a lease
		}
		for range 1 + leases {
			f.now += gap
			f.tick()
			requestMostLease(s, z, 1)
			s.leasing.leases.at(z).asked = f.now
			s.leasing.renew(t.Context(), z, 1)
		}
		f.now += testLease*999/1000 - 1 - int64(leases%2)*gap // the end of the last lease, or of the one before
		f.flush(t)
		admitted, first := 0, f.now
		for ; s.leaseLeft(z, f.now) > 0; admitted++ {
			s.leasing.leases.at(z).asked = f.now // no lease follows
			if f.decide(s, storekit.CheckOf(1, c)) {
				t.Fatalf("%d leases: what is left of them is not spent", leases+1)
			}
		}
		if admitted == 0 {
			t.Fatalf("%d leases: nothing is left of them", leases+1)
		}
		for _, at := range []int64{first, first + window - 2*limit} {
			for f.now = at; ; admitted++ {
				f.now += 2 // a call that finds the loss is made twice
				f.tick()
				check := storekit.CheckOf(1, c)
				if s.decider.decide(t.Context(), check); !check.Admitted || f.now >= first+window {
					break
				}
			}
		}
		if admitted > limit {
			t.Errorf("%d leases: %d are admitted in one window, want at most %d", leases+1, admitted, limit)
		}
	}
}

// TestLogsSurviveASmallClockStep sets the clock back, by less than what an estimate may be off, while
// a log is charged. Nothing is taken for lost, and nothing counts twice.
func TestLogsSurviveASmallClockStep(t *testing.T) {
	srv := redistest.Start(t)
	for _, back := range []int64{1, 5_000, 500_000} {
		f := newFleet(t, srv, 1)
		f.v.flush(t)
		c := f.counters(t, "log", lostSpecs()["sliding_log"])[0]
		k, left := stores.Key{Hi: 1, Lo: 2}, int64(100)
		for step := range 60 {
			if f.v.now += 700; step == 10 || step == 25 {
				f.v.now -= back
			}
			check := f.decide(0, c, k, 1)
			if left--; !check.Admitted || check.Zones[0].Results[0].Remaining != left {
				t.Fatalf("%d back, step %d: admitted %v, %d left, want %d", back, step, check.Admitted, check.Zones[0].Results[0].Remaining, left)
			}
		}
	}
}

// TestLargeLogsArePutBack loses logs with large limits twice in a window, at different points of their rings. What
// was counted before each loss still counts, but for the one check that finds it, and no call takes Redis long.
func TestLargeLogsArePutBack(t *testing.T) {
	srv := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000")
	for _, limit := range []int64{4097, 5000, 8192} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			f := newFleet(t, srv, 2)
			spec := lostSpecs()["sliding_log"]
			spec.Spec.Limit = limit
			c := f.counters(t, fmt.Sprint("large", limit), spec)
			k := stores.Key{Hi: 1, Lo: uint64(limit)}
			used, left := int64(0), int64(0)
			charge := func(cost int64) {
				t.Helper()
				for i := range f.all { // each knows it
					f.v.now += 1_000_000
					left = f.decide(i, c[i], k, cost).Zones[0].Results[0].Remaining
					used += cost
				}
			}
			for _, part := range []int64{limit / 5, limit / 7} {
				charge(1)
				charge(part)
				charge(1)
				f.v.flush(t)
				charge(1)
				if lost := left - (limit - used); lost < 0 || lost > 2 {
					t.Errorf("%d of %d left after %d", left, limit, used)
				}
			}
			check := f.decide(0, c[0], k, left+3)
			if check.Admitted {
				t.Errorf("admitted %d of %d after %d", left+3, limit, used)
			}
		})
	}
	var slowest time.Duration
	for _, call := range srv.Client().SlowLogGet(t.Context(), 1000).Val() {
		if strings.EqualFold(call.Args[0], "evalsha") {
			slowest = max(slowest, call.Duration)
		}
	}
	t.Logf("the slowest call took %v", slowest)
}

// TestLossOfAVeryLongLog has Redis lose logs twice. One that is too long to be put back is counted as not charged, once
// for each loss, whichever instance asks first; a shorter one is put back.
func TestLossOfAVeryLongLog(t *testing.T) {
	srv := redistest.Start(t)
	for limit, counted := range map[int64]bool{8192: false, 8193: true} {
		f := newFleet(t, srv, 3)
		told := make([]*unchargedObserver, 3)
		for i, s := range f.all {
			told[i] = new(unchargedObserver)
			s.Observe(told[i])
		}
		spec := lostSpecs()["sliding_log"]
		spec.Spec.Limit = limit
		c := f.counters(t, fmt.Sprint("very-long-", limit), spec)
		k, used, want := stores.Key{Hi: 1, Lo: 2}, int64(0), int64(0)
		use := func(cost int64) {
			for i := range f.all {
				f.v.now += 1_000_000
				if !f.decide(i, c[i], k, cost).Admitted {
					t.Fatal("denied")
				}
				used += cost
			}
		}
		use(30)
		for range 2 {
			f.decide(0, c[0], k, 5) // which the others are not told of
			f.decide(1, c[1], k, 1)
			f.decide(2, c[2], k, 1)
			used += 7
			f.v.flush(t)
			if counted {
				want, used = want+used-2, 0 // of the first to ask, by when it was told last
			}
			use(1)
		}
		f.v.now += storekit.Hour * 2
		use(1) // when nothing of it counts any more
		sum := told[0].cost + told[1].cost + told[2].cost
		if sum != want {
			t.Errorf("limit %d: %d counted as not charged, want %d", limit, sum, want)
		}
	}
}
