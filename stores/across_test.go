package stores_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

var kit = storekit.Kit{NewTable: func(rules []algorithms.Rule, maxKeys int64) stores.Table {
	return memory.NewTable(rules, maxKeys)
}}

// recordingStore records its decisions and their deadlines.
type recordingStore struct {
	memory.Store
	name      string
	decided   *[]string // names of stores, in order
	timeout   time.Duration
	deadlines []time.Time
}

func (s *recordingStore) Decide(ctx context.Context, check *stores.Check) {
	*s.decided = append(*s.decided, s.name)
	if end, ok := ctx.Deadline(); ok {
		s.deadlines = append(s.deadlines, end)
	}
	s.Store.Decide(ctx, check)
}

func (s *recordingStore) Timeout() time.Duration { return s.timeout }

// localStore returns a local store with a constant clock.
func localStore() memory.Store {
	return memory.Store{Clock: func() int64 { return storekit.Hour }}
}

// pair returns two stores with timeouts of a second and a minute, and the names of
// those that decided, in order.
func pair() (both []stores.Store, decided *[]string) {
	decided = new([]string)
	return []stores.Store{
		&recordingStore{Store: localStore(), name: "one", decided: decided, timeout: time.Second},
		&recordingStore{Store: localStore(), name: "two", decided: decided, timeout: time.Minute},
	}, decided
}

// TestAcrossDecidesTheQueueLast decides a zone with a queue and one without. The
// queue is decided last, and only peeked at if the other zone denies.
func TestAcrossDecidesTheQueueLast(t *testing.T) {
	both, decided := pair()
	queue, plain := kit.TenPerHour(t, "queue", false), kit.TenPerHour(t, "plain", false)
	queue.Last = true
	for _, c := range []struct {
		counters []*stores.Counter
		cost     int64
		want     string
	}{
		{[]*stores.Counter{queue, plain}, 1, "two one"},
		{[]*stores.Counter{plain, queue}, 1, "one two"},
		{[]*stores.Counter{queue, plain}, 11, "two one"},
	} {
		*decided = nil
		stores.Across(context.Background(), storekit.CheckOf(c.cost, c.counters...), both)
		if got := strings.Join(*decided, " "); got != c.want {
			t.Errorf("%s first, cost %d: decided by %s, want %s", c.counters[0].Zone, c.cost, got, c.want)
		}
	}
}

// TestAcrossShadow decides a shadow in another store. It is charged if the live zone
// admits, and only judged if that denies.
func TestAcrossShadow(t *testing.T) {
	both, _ := pair()
	live, shadow := kit.TenPerHour(t, "live", false), kit.TenPerHour(t, "shadow", false)
	for _, c := range []struct{ cost, left int64 }{{4, 6}, {11, 6}, {6, 0}} {
		check := storekit.CheckOf(c.cost, live, shadow)
		check.Shadows = 1
		stores.Across(context.Background(), check, both)
		if res := check.Zones[1].Results; len(res) != 1 || res[0].Remaining != c.left {
			t.Errorf("cost %d: results of the shadow %+v, want Remaining %d", c.cost, res, c.left)
		}
	}
}

// TestAcrossKeepsHeldCost decides a zone that holds its cost until the response
// together with a zone in another store: the cost stays held, and is not charged.
func TestAcrossKeepsHeldCost(t *testing.T) {
	both, _ := pair()
	holds, plain := kit.TenPerHour(t, "holds", true), kit.TenPerHour(t, "plain", false)
	check := storekit.CheckOf(4, holds, plain)
	stores.Across(context.Background(), check, both)
	second := storekit.CheckOf(1, holds)
	if both[0].Decide(context.Background(), second); second.Zones[0].Results[0].Remaining != 5 {
		t.Errorf("remaining %d while 4 and 1 of 10 are held, want 5", second.Zones[0].Results[0].Remaining)
	}
	both[0].Finish(context.Background(), &second.Zones[0], 0)
	both[0].Finish(context.Background(), &check.Zones[0], 0)
	all := storekit.CheckOf(10, holds)
	if both[0].Decide(context.Background(), all); !all.Admitted {
		t.Error("the held cost was charged, want it released")
	}
}

// TestAcrossDeadline checks that the shortest timeout of the stores limits the whole
// decision, in either order.
func TestAcrossDeadline(t *testing.T) {
	first, second := kit.TenPerHour(t, "first", false), kit.TenPerHour(t, "second", false)
	for _, reversed := range []bool{false, true} {
		both, _ := pair()
		if reversed {
			slices.Reverse(both)
		}
		stores.Across(context.Background(), storekit.CheckOf(1, first, second), both)
		for _, s := range both {
			s, _ := s.(*recordingStore)
			if len(s.deadlines) == 0 {
				t.Errorf("store %s decides without a deadline", s.name)
			}
			for _, end := range s.deadlines {
				if time.Until(end) > time.Second {
					t.Errorf("the deadline of store %s is in %v, want a second at most", s.name, time.Until(end))
				}
			}
		}
	}
}

// TestAcrossStoresAllOrNothing decides zones in two stores: all of them are charged,
// or none.
func TestAcrossStoresAllOrNothing(t *testing.T) {
	one, two := &memory.Store{Clock: func() int64 { return storekit.Hour }}, &memory.Store{Clock: func() int64 { return storekit.Hour }}
	r := storekit.Seeded(t)
	a := kit.NewTestCounter(t, "a", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 20, Window: storekit.Hour, Cost: 1}})
	b := kit.NewTestCounter(t, "b", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
	for _, c := range []*stores.Counter{a, b} {
		c.Table = memory.NewTable(c.Rules, 100)
	}
	var used [2]int64
	for range 200 {
		both := r.IntN(2) == 0
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: a, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 1}}, Cost: 1}}}
		of := []stores.Store{one}
		if both {
			check.Zones = append(check.Zones, stores.ZoneCheck{Counter: b, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 1}}, Cost: 1})
			of = append(of, two)
		}
		stores.Across(context.Background(), check, of)
		want := used[0] < 20 && (!both || used[1] < 10)
		if check.Admitted != want {
			t.Fatalf("admitted %v with %v used, both %v", check.Admitted, used, both)
		}
		if check.Admitted {
			used[0]++
			if both {
				used[1]++
			}
		}
		for i := range check.Zones {
			if len(check.Zones[i].Results) == 0 {
				continue // another store had denied
			}
			limit := check.Zones[i].Rules[0].Limit()
			if got := check.Zones[i].Results[0].Remaining; got != limit-used[i] {
				t.Fatalf("zone %d: remaining %d, want %d", i, got, limit-used[i])
			}
		}
	}
}

// TestAcrossPeek peeks at zones in two stores: both are evaluated, and neither is charged.
func TestAcrossPeek(t *testing.T) {
	both, _ := pair()
	one, two := kit.TenPerHour(t, "one", false), kit.TenPerHour(t, "two", false)
	one.InFlight = 1
	for _, cost := range []int64{1, 11, 1} {
		check := storekit.CheckOf(cost, one, two)
		check.Peek = true
		stores.Across(context.Background(), check, both)
		if check.Admitted != (cost == 1) {
			t.Errorf("cost %d: admitted: %v", cost, check.Admitted)
		}
		for i := range check.Zones {
			z := &check.Zones[i]
			if len(z.Results) != 1 || z.Results[0].Remaining != 10 || z.Charged || z.Permit.Taken {
				t.Errorf("cost %d, zone %d: %+v, want it unused", cost, i, z)
			}
		}
	}
	check := storekit.CheckOf(1, one, two)
	stores.Across(context.Background(), check, both)
	if !check.Admitted || check.Zones[0].Results[0].Remaining != 9 {
		t.Errorf("after peeks: %+v", check.Zones[0])
	}
}

// TestShadowAcrossStores denies by the zone of one store what a shadow in another would deny. It is
// judged as in one store, and not charged.
func TestShadowAcrossStores(t *testing.T) {
	both, _ := pair()
	for name, of := range map[string][]stores.Store{"one store": {both[0], both[0]}, "two": both} {
		one, two := kit.TenPerHour(t, "one", false), kit.TenPerHour(t, "two", false)
		denied, charged := 0, 0
		for i := range 40 {
			check := storekit.CheckOf(1, one, two)
			check.Shadows, check.Zones[1].Cost = 1, 2
			check.Peek = i >= 30
			if of[0] == of[1] {
				of[0].Decide(context.Background(), check)
			} else {
				stores.Across(context.Background(), check, of)
			}
			if !check.Zones[1].Admits {
				denied++
			}
			if check.Zones[1].Charged {
				charged++
			}
		}
		if denied != 35 || charged != 5 {
			t.Errorf("%s: the shadow would deny %d of 40 and is charged for %d, want 35 and 5", name, denied, charged)
		}
	}
}
