package redis

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestStoresAgreeOnLeases runs random traces of random zones with leases. Part of
// the checks request a lease. Redis grants what the arithmetic in Go grants, reports
// the same Remaining and has the same states.
func TestStoresAgreeOnLeases(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	shared := newVirtualShared(t, srv, v)
	r := storekit.Seeded(t)
	granted := int64(0)
	for round := range storekit.Operations(t) / 150 {
		var specs []storekit.RuleSpec
		for range 1 + r.IntN(4) {
			if s, ok := leasedSpec(r, storekit.RandomRule(r, false, false)); ok {
				specs = append(specs, s)
			}
		}
		if len(specs) == 0 {
			continue
		}
		// A step back by less than a lease repairs no log, and makes expired stamps
		// valid again, which one ring may have overwritten.
		logs := slices.ContainsFunc(specs, func(s storekit.RuleSpec) bool { _, is := s.Alg.(*algorithms.SlidingLog); return is })
		c := kit.NewTestCounter(t, fmt.Sprint("g", round), 0, false, nil, specs...)
		tr := &trace{
			t: t, v: v, shared: shared, ledger: &storekit.Ledger{Clock: v.clock}, r: r, debts: 15, steps: round%3 == 1 && !logs, verdicts: make(map[string]int),
			zones: []zoneTrace{{counters: [2]*stores.Counter{c, c}, local: [2]*stores.Counter{c, c}}},
		}
		v.now = 1_700_000_000_000_000 + r.Int64N(1_000_000)
		for step := range 150 {
			what := fmt.Sprintf("round %d step %d", round, step)
			if r.IntN(2) == 0 {
				tr.step(what)
			} else {
				granted += tr.lease(what)
			}
			if t.Failed() {
				t.Logf("%+v", specs)
				t.FailNow()
			}
		}
		v.flush(t)
	}
	if granted == 0 {
		t.Error("no lease was granted")
	}
	t.Logf("%d granted", granted)
}

// lease requests a lease from Redis, grants the same in the ledger, and compares
// both.
func (tr *trace) lease(what string) int64 {
	tr.advance()
	check, _ := checkOf(tr.zones, 0, uint64(1+tr.r.IntN(2)), 1+tr.r.Int64N(3))
	local := &stores.Check{Peek: true}
	local.Zones = append(local.Zones, check.Zones...)
	z, localZone := &check.Zones[0], &local.Zones[0]
	z.Lease.Want = 1 + tr.r.Int64N(30)
	tr.v.tick()
	forgetSnapshots(check)
	if err := tr.shared.decider.call(context.Background(), check, tr.shared.o.Clock()); err != nil {
		tr.t.Fatalf("%s: %v", what, err)
	}
	tr.ledger.Decide(context.Background(), local)
	if local.Admitted {
		tr.grant(localZone, z.Lease.Want)
	}
	compareChecks(tr.t, what+", leasing", check, local)
	compareStates(tr.t, what+", leasing", tr.v, tr.ledger, z)
	if localZone.Lease.Granted != z.Lease.Granted {
		tr.t.Errorf("%s: %d of %d granted by Redis, %d by the ledger", what, z.Lease.Granted, z.Lease.Want, localZone.Lease.Granted)
	}
	for _, res := range z.Results {
		tr.edges = append(tr.edges, tr.v.now+max(0, res.Retry), tr.v.now+res.Reset)
	}
	return z.Lease.Granted
}

// grant charges an admitted cost and, as far as the rules admit it, the requested
// lease in the ledger.
func (tr *trace) grant(z *stores.ZoneCheck, want int64) {
	zero := func(int) int64 { return 0 }
	for z.Lease.Granted = want; z.Lease.Granted > 0; z.Lease.Granted /= 2 {
		fits := true
		tr.ledger.Update(z, tr.v.now, zero, func(i int, s algorithms.State) {
			fits = fits && z.Rules[i].Judge(s, tr.v.now, z.Cost+2*z.Lease.Granted, 0).Admit
		})
		if fits {
			break
		}
	}
	charge := z.Cost + z.Lease.Granted
	tr.ledger.Update(z, tr.v.now, func(int) int64 { return charge }, func(i int, s algorithms.State) {
		r, res := z.Rules[i], &z.Results[i]
		r.Overdraw(s, tr.v.now, charge)
		res.Count(r, s, tr.v.now, 0)
	})
	z.Charged = true
}

// TestDebtOutsideOfALeasedWindow hands over a debt that has just left the window of a key that
// Redis does not have, and leases. The counter beyond those of the window, which is for the
// part in which a lease ends, does not keep it in either store.
func TestDebtOutsideOfALeasedWindow(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client(), now: 1_700_000_000_000_000}
	shared, local := newVirtualShared(t, srv, v), &storekit.Ledger{Clock: v.clock}
	const parts, width = 7, 2702
	spec := storekit.RuleSpec{Alg: &algorithms.SlidingWindow{Buckets: parts}, Spec: algorithms.Spec{Limit: 3, Window: parts * width, Cost: 1, Lease: 2048}}
	c := kit.NewTestCounter(t, "outside", 0, false, nil, spec)
	v.now -= v.now % width // the next lease ends in this part
	k := stores.Key{Hi: 1, Lo: 7}
	z := &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1, Enforced: stores.Enforced{Rules: c.Rules}}
	for age := range int64(parts + 3) {
		v.flush(t)
		c.Table.Reset(k)
		local.Forget()
		debt := make([]int64, parts+3)
		debt[0], debt[1] = v.now/width-age, 1
		handOver(t, fmt.Sprint("age ", age), v, shared, local, z, &memory.Handover{Time: v.now, Debts: [][]int64{debt}})
		v.tick()
		for _, s := range []stores.Store{shared, local} {
			check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
			s.Decide(t.Context(), check)
		}
		compareStates(t, fmt.Sprintf("age %d, after a charge", age), v, local, z)
	}
}
