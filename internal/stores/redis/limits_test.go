package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// varying returns counters of one zone for each instance of a fleet, one for each limit, as
// for requests that bring their limits. The first limit is that of requests that bring none.
func (f *fleet) varying(t *testing.T, name string, spec storekit.RuleSpec, limits ...int64) (all [][]*stores.Counter) {
	t.Helper()
	for _, s := range f.all {
		var of []*stores.Counter
		for _, limit := range limits {
			var table stores.Table
			if len(of) > 0 {
				table = of[0].Table
			}
			sp := spec
			sp.Spec.Limit = limit
			of = append(of, kit.NewTestCounter(t, name, 0, false, table, sp))
			of[len(of)-1].Base = of[0]
		}
		of[0].Overrides = make(map[int64]*stores.Counter) // without it, because it varies
		storekit.Adopt(t, s, of[0])
		all = append(all, of)
	}
	return all
}

// varyingSpecs are rules in an hour whose limit may change from request to request.
func varyingSpecs() map[string]storekit.RuleSpec {
	specs := lostSpecs()
	delete(specs, "sliding_log")
	return specs
}

// TestVaryingLimitsInOutages takes the shares of two limits during an outage, of which the
// smaller is used last. The debt of the greater one is charged in full, in the background.
func TestVaryingLimitsInOutages(t *testing.T) {
	srv := redistest.Start(t)
	k, other := stores.Key{Hi: 1, Lo: 2}, stores.Key{Hi: 3, Lo: 4}
	for name, spec := range varyingSpecs() {
		f := newFleet(t, srv, 2)
		f.v.now += storekit.Hour / 2
		limits := []int64{10, 60, 6}
		for n := range 50 {
			limits = append(limits, int64(100+n))
		}
		c := f.varying(t, "varying-"+name, spec, limits...)
		for n := range limits {
			f.decide(0, c[0][n], other, 1)
		}
		f.decide(0, c[0][1], k, 1)
		f.set(-1, faultRefused)
		f.v.now += 1000
		f.decide(0, c[0][1], k, 1)
		if n := f.drain(0, c[0][1], k); n < 28 || n > 30 {
			t.Errorf("%s: %d admitted in the fallback, want the share of 60", name, n)
		}
		f.decide(0, c[0][2], other, 1) // owes, too
		f.set(-1, noFault)
		f.v.now += 2 * rampLasts
		f.all[0].setTime(f.v.now)
		f.all[0].payDebts(context.Background())
		f.v.now += 2 * rampLasts
		if n := f.drain(1, c[1][1], k); n < 28 || n > 32 {
			t.Errorf("%s: %d admitted after the outage, want what is left of 60", name, n)
		}
		if owes(c[0][0]) {
			t.Errorf("%s: debts remain", name)
		}
	}
}

// TestVaryingLimitsAreNotForgotten lets Redis forget everything while requests bring
// different limits: what was used is put back.
func TestVaryingLimitsAreNotForgotten(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range varyingSpecs() {
		f := newFleet(t, srv, 2)
		f.v.now += storekit.Hour / 2
		c := f.varying(t, "varying-lost-"+name, spec, 10, 60, 30)
		admitted := 0
		for n := range 100 {
			if n == 40 || n == 50 {
				f.v.flush(t)
			}
			f.v.now += 20_000
			if f.decide(n%2, c[n%2][1+n%2], k, 1).Admitted {
				admitted++
			}
		}
		if admitted > 62 || admitted < 45 {
			t.Errorf("%s: %d admitted under limits of 60 and 30, between which Redis forgot everything", name, admitted)
		}
	}
}

// TestVaryingDenialsAskRedis denies under a low limit, at whose rate a level drains,
// until a request brings a greater limit: then it drains faster, and the low limit admits
// sooner than the denial said.
func TestVaryingDenialsAskRedis(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 1)
	k := stores.Key{Hi: 1, Lo: 2}
	spec := storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 10}, Spec: algorithms.Spec{Limit: 1, Window: storekit.Hour, Cost: 1}}
	c := f.varying(t, "varying-denied", spec, 1, storekit.Hour/1000)[0] // one in an hour, and one in a millisecond
	f.drain(0, c[0], k)
	if check := f.decide(0, c[0], k, 1); check.Admitted || check.Zones[0].Results[0].Retry < storekit.Hour/2 {
		t.Fatalf("%+v", check.Zones[0].Results)
	}
	if !f.decide(0, kit.NewTestCounter(t, "varying-denied", 0, false, c[0].Table,
		storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 20}, Spec: algorithms.Spec{Limit: storekit.Hour / 1000, Window: storekit.Hour, Cost: 1}}), k, 1).Admitted {
		t.Fatal("a greater burst does not admit")
	}
	f.v.now += 20_000
	if !f.decide(0, c[0], k, 1).Admitted {
		t.Error("denied without a call, though what was used has drained at the rate of another limit")
	}
}

// TestVaryingResetMark resets a key of a zone whose limits come from requests: it is marked
// as reset for as long as a burst may drain under a limit of 1.
func TestVaryingResetMark(t *testing.T) {
	f := newFleet(t, redistest.Start(t), 1)
	for name, want := range map[string]int64{"gcra": 2 * 50, "fixed_window": 2, "sliding_window": 2} {
		spec := varyingSpecs()[name]
		if name == "gcra" {
			spec.Alg = &algorithms.GCRA{Burst: 50}
		}
		c := f.varying(t, fmt.Sprint("mark-", name), spec, 100)[0][0]
		if got := forgetsAfter(c).Microseconds(); got != want*storekit.Hour {
			t.Errorf("%s: forgotten after %d, want %d hours", name, got, want)
		}
	}
}
