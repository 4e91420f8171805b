package memory

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// faulty is a rule of another module, which panics.
type faulty struct{ algorithms.Rule }

func (faulty) Judge(algorithms.State, int64, int64, int64) algorithms.Verdict { panic("faulty rule") }

// TestPanicReleasesLocks decides by a rule that panics, alone and with another zone. The same key can be decided
// afterwards.
func TestPanicReleasesLocks(t *testing.T) {
	local := &Store{Clock: func() int64 { return storekit.Hour }}
	newCounter := func(name string) *stores.Counter {
		return kit.NewTestCounter(t, name, 2, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
	}
	for _, zones := range [][]*stores.Counter{{newCounter("a")}, {newCounter("b"), newCounter("c")}} {
		sound := zones[0].Rules
		zones[0].Rules = []algorithms.Rule{faulty{sound[0]}}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			local.Decide(context.Background(), storekit.CheckOf(1, zones...))
		}()
		if !isUnlocked(local, zones) {
			t.Fatalf("%d zones: a lock is held", len(zones))
		}
		zones[0].Rules = sound
		check := storekit.CheckOf(1, zones...)
		if local.Decide(context.Background(), check); !check.Admitted {
			t.Errorf("%d zones: denied after the panic", len(zones))
		}
	}
}

// isUnlocked reports whether no lock of a store's permits and of the counters' tables is held.
func isUnlocked(local *Store, counters []*stores.Counter) bool {
	var locks []*sync.Mutex
	for i := range local.Permits.shards {
		locks = append(locks, &local.Permits.shards[i].mu)
	}
	for _, c := range counters {
		for i := range TableOf(c).shards {
			locks = append(locks, &TableOf(c).shards[i].mu)
		}
	}
	return !slices.ContainsFunc(locks, func(mu *sync.Mutex) bool {
		free := mu.TryLock()
		if free {
			mu.Unlock()
		}
		return !free
	})
}
