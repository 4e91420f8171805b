package redis

import (
	"context"
	"fmt"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestDenialsWithoutACall has two instances decide random checks of one to three zones. Each verdict is that of
// a local store that decides all of them. A denial without a call is never longer, and names the rule that
// denies longest, unless the other instance was charged for one of the keys since this one called.
func TestDenialsWithoutACall(t *testing.T) {
	srv := redistest.Start(t)
	r := storekit.Seeded(t)
	denied, uncalled, outdated := 0, 0, 0
	const all = 0 // the user of the key that counts all of them
	for round := range max(1, storekit.Operations(t)/1000) {
		local := &memory.Store{}
		var instances [2]*Store
		var clocks [2]*virtual
		for i := range instances {
			clocks[i] = &virtual{client: srv.Client(), now: 1_700_000_000_000_000}
			instances[i] = newVirtualShared(t, srv, clocks[i])
			instances[i].recall()
		}
		local.Clock = clocks[0].clock
		var counters [3][]*stores.Counter
		for i := range 1 + r.IntN(3) {
			specs := []storekit.RuleSpec{storekit.RandomRule(r, false, false)}
			if r.IntN(2) == 0 {
				specs = append(specs, storekit.RandomRule(r, false, false))
			}
			for of := range counters {
				counters[of] = append(counters[of], kit.NewTestCounter(t, fmt.Sprint("uncalled", round, i), 0, false, nil, specs...))
			}
		}
		checkOf := func(of int, user uint64, cost int64) *stores.Check {
			check := new(stores.Check)
			for i, c := range counters[of] {
				k := stores.Key{Hi: user, Lo: 7}
				if i == 0 {
					k.Hi = 1 << 32 // counts all users together
				}
				check.Zones = append(check.Zones, stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k, Tag: stores.Key{Lo: 9}}, Cost: cost})
			}
			return check
		}
		var since [2][4]bool // whether the other instance was charged for a user since this one called
		for step := range 1000 {
			by, user, cost := r.IntN(2), 1+r.Uint64N(3), 1+r.Int64N(3)*r.Int64N(2)
			took := r.Int64N(1 + r.Int64N(4000))
			for i := range clocks {
				clocks[i].now += took
			}
			shared, want := checkOf(by, user, cost), checkOf(2, user, cost)
			clocks[by].tick()
			instances[by].Decide(context.Background(), shared)
			local.Decide(context.Background(), want)
			if shared.Admitted != want.Admitted || shared.Mode != stores.ModeShared {
				t.Fatalf("round %d step %d: admitted %v in mode %v, want %v", round, step, shared.Admitted, shared.Mode, want.Admitted)
			}
			called := clocks[by].called()
			if called {
				since[by][all], since[by][user] = false, false
			}
			if shared.Admitted {
				since[1-by][all], since[1-by][user] = true, true
				continue
			}
			if denied++; called {
				continue
			}
			uncalled++
			if longestRetry(shared) > longestRetry(want) {
				t.Fatalf("round %d step %d: denied for %d, want at most %d", round, step, longestRetry(shared), longestRetry(want))
			}
			if denies(shared) == denies(want) {
				continue
			}
			if outdated++; !since[by][all] && !since[by][user] {
				t.Fatalf("round %d step %d: rule %v denies, want %v", round, step, denies(shared), denies(want))
			}
		}
		clocks[0].flush(t)
	}
	t.Logf("%d denials, %d without a call, %d of them name an outdated rule", denied, uncalled, outdated)
	if uncalled == 0 {
		t.Errorf("each of %d denials called Redis", denied)
	}
}

// denies returns the zone and the rule that deny a check longest.
func denies(check *stores.Check) (at [2]int) {
	longest := int64(-1)
	for i := range check.Zones {
		for j := range check.Zones[i].Results {
			if v := &check.Zones[i].Results[j].Verdict; !v.Admit && v.Retry > longest {
				longest, at = v.Retry, [2]int{i, j}
			}
		}
	}
	return at
}

// longestRetry returns the longest retry of the zones that are no shadows, or
// Never.
func longestRetry(check *stores.Check) (retry int64) {
	for i := range check.Zones[:len(check.Zones)-check.Shadows] {
		for _, res := range check.Zones[i].Results {
			if res.Retry == algorithms.Never {
				return algorithms.Never
			}
			retry = max(retry, res.Retry)
		}
	}
	return retry
}

// called says whether the last decision called Redis: the call's number is no
// longer the one that tick set.
func (v *virtual) called() bool { return v.conn.seq.Load() != uint64(v.now)-1 }
