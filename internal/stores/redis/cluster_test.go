package redis

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

func newClusterStore(t *testing.T, nodes []*redistest.Server) *Store {
	t.Helper()
	o := ConnOptions{Cluster: true, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: time.Second}
	for _, n := range nodes {
		o.Addresses = append(o.Addresses, n.Addr)
	}
	s := New(Options{Name: "cluster", Clock: func() int64 { return storestest.Hour }, ConnOptions: o}, quiet{t})
	s.Start(0)
	t.Cleanup(func() { _ = s.Destruct() })
	return s
}

// decideInCluster asks for items whose keys may lie in several slots.
func decideInCluster(s *Store, items ...stores.ZoneCheck) *stores.Check {
	check := &stores.Check{Zones: items}
	of := make([]stores.Store, len(items))
	for i := range items {
		of[i] = s.At(items[i].Tag)
	}
	stores.Across(context.Background(), check, of)
	return check
}

// TestClusterKeepsLimitsOverSlots decides a zone, two zones of one key, and two
// zones of different keys, concurrently. No limit is exceeded, a denied check
// charges no zone, nothing stays held, and no call mixes slots.
func TestClusterKeepsLimitsOverSlots(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	s := newClusterStore(t, nodes)
	account := storestest.NewTestCounter(t, "account", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 40, Window: storestest.Hour, Cost: 1}})
	address := storestest.NewTestCounter(t, "address", 5, false, nil, storestest.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 15, Window: storestest.Hour, Cost: 1}})
	item := func(c *stores.Counter, k uint64) stores.ZoneCheck {
		key := stores.Key{Hi: k * 0x9E3779B97F4A7C15, Lo: k}
		return stores.ZoneCheck{Counter: c, Key: key, Tag: key, Cost: 1}
	}
	var byAccount [4]atomic.Int64
	var byAddress [8]atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 60 {
				acc, addr := uint64(i%4), uint64(10+(g*7+i)%8)
				check := decideInCluster(s, item(account, acc), item(address, addr))
				if check.Admitted {
					byAccount[acc].Add(1)
					byAddress[addr-10].Add(1)
					s.Finish(context.Background(), &check.Zones[1], 0)
				}
			}
		})
	}
	wg.Wait()
	for k := range byAccount {
		checkUsed(t, s, item(account, uint64(k)), byAccount[k].Load())
	}
	for k := range byAddress {
		checkUsed(t, s, item(address, uint64(10+k)), byAddress[k].Load())
	}
	both := decideInCluster(s, item(account, 50), item(address, 50))
	if !both.Admitted || both.Mode != stores.ModeShared {
		t.Errorf("two zones of one key: admitted %v, mode %v", both.Admitted, both.Mode)
	}
	s.Finish(context.Background(), &both.Zones[1], 0)
	checkNothingHeld(t, nodes)
}

// checkUsed asks once more, for more than there can be, and reads what is left.
func checkUsed(t *testing.T, s *Store, z stores.ZoneCheck, passed int64) {
	t.Helper()
	limit := z.Counter.Rules[0].Limit()
	if passed > limit {
		t.Errorf("zone %s key %d: %d passed, limit %d", z.Counter.Zone, z.Key.Lo, passed, limit)
	}
	z.Cost = limit
	check := decideInCluster(s, z)
	if left := check.Zones[0].Results[0].Remaining; passed > 0 && left != limit-passed {
		t.Errorf("zone %s key %d: %d passed and %d are left of %d", z.Counter.Zone, z.Key.Lo, passed, left, limit)
	}
}

func checkNothingHeld(t *testing.T, nodes []*redistest.Server) {
	t.Helper()
	for _, n := range nodes {
		n.CheckTTLs()
		keys, err := n.Client().Keys(context.Background(), "*:holds").Result()
		if err != nil && err != goredis.Nil { //nolint:errorlint // go-redis returns it as it is
			t.Fatal(err)
		}
		if len(keys) > 0 {
			t.Errorf("places are still held: %s", strings.Join(keys, " "))
		}
	}
}

// TestPermitOutlivesReserve reserves a zone with in_flight for the sake of
// another store: the permit is held until the response.
func TestPermitOutlivesReserve(t *testing.T) {
	srv := redistest.Start(t)
	clock := func() int64 { return storestest.Hour }
	shared := newTestShared(t, srv, clock)
	local := &memory.Store{Clock: clock}
	for name, both := range map[string][2]stores.Store{"redis first": {shared, local}, "local first": {local, shared}} {
		t.Run(name, func(t *testing.T) {
			first := storestest.NewTestCounter(t, strings.ReplaceAll(name, " ", "-"), 1, false, nil,
				storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storestest.Hour, Cost: 1}})
			second := storestest.NewTestCounter(t, "other", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: storestest.Hour, Cost: 1}})
			second.Table = memory.NewTable(second.Rules, true, 100)
			ask := func() *stores.Check {
				check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: first, Key: stores.Key{Hi: 1, Lo: 1}, Tag: stores.Key{Hi: 1, Lo: 1}, Cost: 1}, {Counter: second, Key: stores.Key{Hi: 2, Lo: 2}, Tag: stores.Key{Hi: 2, Lo: 2}, Cost: 1}}}
				stores.Across(context.Background(), check, both[:])
				return check
			}
			check := ask()
			if !check.Admitted {
				t.Fatal("the first request was denied")
			}
			if b := ask(); b.Admitted || !b.Zones[0].Full {
				t.Errorf("a second request at the same time: admitted %v, full %v", b.Admitted, b.Zones[0].Full)
			}
			both[0].Finish(context.Background(), &check.Zones[0], 0)
			c := ask()
			if !c.Admitted {
				t.Fatal("a request after the first was answered was denied")
			}
			if left := c.Zones[0].Results[0].Remaining; left != 8 {
				t.Errorf("%d left of 10 after two requests", left)
			}
			both[0].Finish(context.Background(), &c.Zones[0], 0)
		})
	}
}
