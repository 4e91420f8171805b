package stores

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
)

// TestStoresAgreeOnLeases takes random zones with leases over random traces, in
// which part of the asks want something in advance: Redis grants what the Go
// arithmetic would, says the same of what is left and keeps the same states.
func TestStoresAgreeOnLeases(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	shared := newVirtualShared(t, srv, v)
	r := seeded(t)
	granted := int64(0)
	for round := range operations(t, 12_000) / 150 {
		var specs []ruleSpec
		for range 1 + r.IntN(4) {
			if s, ok := leasedSpec(r, randomRule(r, false, false)); ok {
				specs = append(specs, s)
			}
		}
		if len(specs) == 0 {
			continue
		}
		// A clock that is set back by less than a lease mends no log, and wakes up
		// stamps that one ring still has and another has used again.
		logs := slices.ContainsFunc(specs, func(s ruleSpec) bool { _, is := s.alg.(*algorithms.SlidingLog); return is })
		c := newTestCounter(t, fmt.Sprint("g", round), 0, false, nil, specs...)
		tr := &trace{
			t: t, v: v, shared: shared, local: &Local{Clock: v.clock}, r: r, owes: 15, steps: round%3 == 1 && !logs, verdicts: make(map[string]int),
			zones: []zoneTrace{{counters: [2]*Counter{c, c}}},
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
		v.forget(t)
	}
	if granted == 0 {
		t.Error("nothing was granted")
	}
	t.Logf("%d granted in advance", granted)
}

// lease asks Redis for more than the cost, and does the same to the local table.
func (tr *trace) lease(what string) int64 {
	tr.pass()
	a, b := askOf(tr.zones, 0, uint64(1+tr.r.IntN(2)), 1+tr.r.Int64N(3)), &Ask{Look: true}
	b.Items = append(b.Items, a.Items...)
	it, twin := &a.Items[0], &b.Items[0]
	it.lease.want = 1 + tr.r.Int64N(30)
	tr.v.tick()
	if err := tr.shared.decide(context.Background(), a); err != nil {
		tr.t.Fatalf("%s: %v", what, err)
	}
	tr.local.Decide(context.Background(), b)
	if b.Admitted {
		tr.grant(twin, it.lease.want)
	}
	compareAsks(tr.t, what+", leasing", a, b)
	compareStates(tr.t, what+", leasing", tr.v, "diana", it)
	if twin.lease.granted != it.lease.granted {
		tr.t.Errorf("%s: %d of %d granted by Redis, %d by the local table", what, it.lease.granted, it.lease.want, twin.lease.granted)
	}
	for _, res := range it.Results {
		tr.hints = append(tr.hints, tr.v.now+max(0, res.Retry), tr.v.now+res.Reset)
	}
	return it.lease.granted
}

// grant charges an item that was found admitted, and what it wants in advance, to
// the local table.
func (tr *trace) grant(it *Item, want int64) {
	nothing := func(int) int64 { return 0 }
	for it.lease.granted = want; it.lease.granted > 0; it.lease.granted /= 2 {
		fits := true
		Update(it, tr.v.now, nothing, func(i int, s algorithms.State) {
			fits = fits && it.Rules[i].Judge(s, tr.v.now, it.Cost+2*it.lease.granted, 0).Admit
		})
		if fits {
			break
		}
	}
	charge := it.Cost + it.lease.granted
	Update(it, tr.v.now, func(int) int64 { return charge }, func(i int, s algorithms.State) {
		r, res := it.Rules[i], &it.Results[i]
		r.Owe(s, tr.v.now, charge)
		res.Remaining, res.Reset = r.Numbers(s, tr.v.now)
		res.Remaining = max(0, res.Remaining)
	})
	it.Charged = true
}
