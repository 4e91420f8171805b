package memory

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// TestDebtAfterClockStepBack sets Redis' clock back during an outage, in which the part of the
// window may have changed before. What the instance knew when it began is not owed: Redis has it.
func TestDebtAfterClockStepBack(t *testing.T) {
	const hour = storekit.Hour
	for _, one := range []struct {
		a     algorithms.Algorithm
		later int64 // from when the instance knew until it charges
	}{{&algorithms.FixedWindow{}, 0}, {&algorithms.FixedWindow{}, hour}, {&algorithms.SlidingWindow{}, 0}, {&algorithms.SlidingWindow{}, hour}, {&algorithms.SlidingWindow{}, 3 * hour}} {
		a := one.a
		r, err := a.Compile(algorithms.Spec{Limit: 1000, Window: 10 * hour, Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		h := r.(algorithms.Handover)
		now := int64(1000 * hour)
		s := make(algorithms.State, r.Words())
		r.Charge(s, now, 136, 0)
		now += one.later
		r.Charge(s, now, 10, 0)
		now -= one.later + 3*hour
		r.Repair(s, now)
		debt := h.Debt(s, 10, 0, r, now)
		sum := int64(0)
		for _, c := range debt[1:] {
			sum += c
		}
		if sum != 10 {
			t.Errorf("%s, charged %d h later: %d are owed, want 10", a.Kind(), one.later/hour, sum)
		}
	}
}
