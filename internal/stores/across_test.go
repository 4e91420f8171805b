package stores_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

func init() {
	storestest.NewTable = func(rules []algorithms.Rule, holds bool, maxKeys int64) stores.Table {
		return memory.NewTable(rules, holds, maxKeys)
	}
}

// recordingStore records that it decides, and until when it may.
type recordingStore struct {
	memory.Store
	name      string
	asked     *[]string
	timeout   time.Duration
	deadlines []time.Time
}

func (s *recordingStore) Decide(ctx context.Context, check *stores.Check) {
	*s.asked = append(*s.asked, s.name)
	if end, ok := ctx.Deadline(); ok {
		s.deadlines = append(s.deadlines, end)
	}
	s.Store.Decide(ctx, check)
}

func (s *recordingStore) Timeout() time.Duration { return s.timeout }

// localStore is a store in this process whose clock stands still.
func localStore() memory.Store {
	return memory.Store{Clock: func() int64 { return storestest.Hour }}
}

// pair returns two stores with timeouts of a second and a minute, and the names
// of those that decided, in order.
func pair() (both []stores.Store, asked *[]string) {
	asked = new([]string)
	return []stores.Store{
		&recordingStore{Store: localStore(), name: "one", asked: asked, timeout: time.Second},
		&recordingStore{Store: localStore(), name: "two", asked: asked, timeout: time.Minute},
	}, asked
}

// TestAcrossDecidesTheQueueLast decides a zone that paces and one that does not.
// The queue is decided last, and only peeked at if the other denies.
func TestAcrossDecidesTheQueueLast(t *testing.T) {
	both, asked := pair()
	queue, plain := storestest.TenAnHour(t, "queue", false), storestest.TenAnHour(t, "plain", false)
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
		*asked = nil
		stores.Across(context.Background(), storestest.Items(c.cost, c.counters...), both)
		if got := strings.Join(*asked, " "); got != c.want {
			t.Errorf("%s first, cost %d: asked %s, want %s", c.counters[0].Zone, c.cost, got, c.want)
		}
	}
}

// TestAcrossShadow charges a shadow in another store if the live zone admits,
// and not if that denies.
func TestAcrossShadow(t *testing.T) {
	both, _ := pair()
	live, shadow := storestest.TenAnHour(t, "live", false), storestest.TenAnHour(t, "shadow", false)
	for _, c := range []struct{ cost, left int64 }{{4, 6}, {11, -1}, {6, 0}} {
		check := storestest.Items(c.cost, live, shadow)
		check.Zones[1].Shadow = true
		stores.Across(context.Background(), check, both)
		if res := check.Zones[1].Results; len(res) > 0 && res[0].Remaining != c.left || len(res) == 0 && c.left >= 0 {
			t.Errorf("cost %d: the shadow says %+v, want %d left", c.cost, res, c.left)
		}
	}
}

// TestAcrossKeepsHeldCost decides a zone that holds its cost until the response
// together with a zone in another store: the cost stays held, and is not charged.
func TestAcrossKeepsHeldCost(t *testing.T) {
	both, _ := pair()
	holds, plain := storestest.TenAnHour(t, "holds", true), storestest.TenAnHour(t, "plain", false)
	check := storestest.Items(4, holds, plain)
	stores.Across(context.Background(), check, both)
	b := storestest.Items(1, holds)
	if both[0].Decide(context.Background(), b); b.Zones[0].Results[0].Remaining != 5 {
		t.Errorf("%d are left while 4 and 1 are held of 10", b.Zones[0].Results[0].Remaining)
	}
	both[0].Finish(context.Background(), &b.Zones[0], 0)
	both[0].Finish(context.Background(), &check.Zones[0], 0)
	c := storestest.Items(10, holds)
	if both[0].Decide(context.Background(), c); !c.Admitted {
		t.Error("what was held was charged, though the answer was not to be paid for")
	}
}

// TestAcrossDeadline limits the whole decision to the shortest timeout of the
// stores, in either order.
func TestAcrossDeadline(t *testing.T) {
	first, second := storestest.TenAnHour(t, "first", false), storestest.TenAnHour(t, "second", false)
	for _, reversed := range []bool{false, true} {
		both, _ := pair()
		if reversed {
			slices.Reverse(both)
		}
		stores.Across(context.Background(), storestest.Items(1, first, second), both)
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

// TestAcrossStoresAllOrNothing decides zones in two stores together.
func TestAcrossStoresAllOrNothing(t *testing.T) {
	one, two := &memory.Store{Clock: func() int64 { return storestest.Hour }}, &memory.Store{Clock: func() int64 { return storestest.Hour }}
	r := storestest.Seeded(t)
	a := storestest.NewTestCounter(t, "a", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 20, Window: storestest.Hour, Cost: 1}})
	b := storestest.NewTestCounter(t, "b", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 10, Window: storestest.Hour, Cost: 1}})
	for _, c := range []*stores.Counter{a, b} {
		c.Table = memory.NewTable(c.Rules, true, 100)
	}
	var used [2]int64
	for range 200 {
		both := r.IntN(2) == 0
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: a, Key: stores.Key{Hi: 1, Lo: 1}, Cost: 1}}}
		of := []stores.Store{one}
		if both {
			check.Zones = append(check.Zones, stores.ZoneCheck{Counter: b, Key: stores.Key{Hi: 1, Lo: 1}, Cost: 1})
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
				continue // another store had already denied
			}
			limit := check.Zones[i].Rules[0].Limit()
			if got := check.Zones[i].Results[0].Remaining; got != limit-used[i] {
				t.Fatalf("item %d: remaining %d, want %d", i, got, limit-used[i])
			}
		}
	}
}
