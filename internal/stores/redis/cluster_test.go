package redis

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

func newClusterStore(t *testing.T, nodes []*redistest.Server) *Store {
	t.Helper()
	o := ConnOptions{Cluster: true, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: 5 * time.Second}
	for _, n := range nodes {
		o.Addresses = append(o.Addresses, n.Addr)
	}
	s := New(Options{Name: "cluster", Clock: func() int64 { return storekit.Hour }, ConnOptions: o}, strictObserver{t})
	s.Start(0)
	t.Cleanup(func() { _ = s.Destruct() })
	return s
}

// decideInCluster decides zone checks whose keys may be in several slots.
func decideInCluster(s *Store, zones ...stores.ZoneCheck) *stores.Check {
	check := &stores.Check{Zones: zones}
	of := make([]stores.Store, len(zones))
	for i := range zones {
		of[i] = s.At(zones[i].Tag)
	}
	stores.Across(context.Background(), check, of)
	return check
}

// TestClusterKeepsLimitsOverSlots concurrently decides checks of two zones with
// different keys, and then checks of one zone and of two zones with one key. No
// limit is exceeded, a denied check charges no zone, no permit remains, and no
// call mixes slots.
func TestClusterKeepsLimitsOverSlots(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	s := newClusterStore(t, nodes)
	account := kit.NewTestCounter(t, "account", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 40, Window: storekit.Hour, Cost: 1}})
	address := kit.NewTestCounter(t, "address", 5, false, nil, storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: algorithms.Spec{Limit: 15, Window: storekit.Hour, Cost: 1}})
	zoneCheck := func(c *stores.Counter, k uint64) stores.ZoneCheck {
		key := stores.Key{Hi: k * 0x9E3779B97F4A7C15, Lo: k}
		return stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key, Tag: key}, Cost: 1}
	}
	var byAccount [4]atomic.Int64
	var byAddress [8]atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 60 {
				acc, addr := uint64(i%4), uint64(10+(g*7+i)%8)
				check := decideInCluster(s, zoneCheck(account, acc), zoneCheck(address, addr))
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
		checkUsed(t, s, zoneCheck(account, uint64(k)), byAccount[k].Load())
	}
	for k := range byAddress {
		checkUsed(t, s, zoneCheck(address, uint64(10+k)), byAddress[k].Load())
	}
	both := decideInCluster(s, zoneCheck(account, 50), zoneCheck(address, 50))
	if !both.Admitted || both.Mode != stores.ModeShared {
		t.Errorf("two zones of one key: admitted %v, mode %v", both.Admitted, both.Mode)
	}
	s.Finish(context.Background(), &both.Zones[1], 0)
	checkNothingHeld(t, nodes)
}

// checkUsed checks a key with the cost of the whole limit, and compares Remaining
// with what was admitted.
func checkUsed(t *testing.T, s *Store, z stores.ZoneCheck, admitted int64) {
	t.Helper()
	limit := z.Counter.Rules[0].Limit()
	if admitted > limit {
		t.Errorf("zone %s key %d: %d admitted, limit %d", z.Counter.Zone, z.Key.Lo, admitted, limit)
	}
	z.Cost = limit
	check := decideInCluster(s, z)
	if left := check.Zones[0].Results[0].Remaining; admitted > 0 && left != limit-admitted {
		t.Errorf("zone %s key %d: %d admitted and %d remaining of %d", z.Counter.Zone, z.Key.Lo, admitted, left, limit)
	}
}

// checkNothingHeld fails the test if a permit remains.
func checkNothingHeld(t *testing.T, nodes []*redistest.Server) {
	t.Helper()
	for _, n := range nodes {
		n.CheckTTLs()
		keys, err := n.Client().Keys(context.Background(), "*:permits").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if held := permitsIn(t, n.Client(), k); held != 0 {
				t.Errorf("%s: %d permits are held", k, held)
			}
		}
	}
}

// TestPermitOutlivesReserve reserves a zone with in_flight until another store has
// decided. Once both admit, the permit is held until the response.
func TestPermitOutlivesReserve(t *testing.T) {
	srv := redistest.Start(t)
	clock := func() int64 { return storekit.Hour }
	shared := newTestShared(t, srv, clock)
	local := &memory.Store{Clock: clock}
	for name, both := range map[string][2]stores.Store{"redis first": {shared, local}, "local first": {local, shared}} {
		t.Run(name, func(t *testing.T) {
			first := kit.NewTestCounter(t, strings.ReplaceAll(name, " ", "-"), 1, false, nil,
				storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
			second := kit.NewTestCounter(t, "other", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: storekit.Hour, Cost: 1}})
			second.Table = memory.NewTable(second.Rules, 100)
			decide := func() *stores.Check {
				check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: first, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 1}, Tag: stores.Key{Hi: 1, Lo: 1}}, Cost: 1}, {Counter: second, Subject: stores.Subject{Key: stores.Key{Hi: 2, Lo: 2}, Tag: stores.Key{Hi: 2, Lo: 2}}, Cost: 1}}}
				stores.Across(context.Background(), check, both[:])
				return check
			}
			check := decide()
			if !check.Admitted {
				t.Fatal("the first request was denied")
			}
			if second := decide(); second.Admitted || !second.Zones[0].Full {
				t.Errorf("a concurrent second request: admitted %v, full %v", second.Admitted, second.Zones[0].Full)
			}
			both[0].Finish(context.Background(), &check.Zones[0], 0)
			c := decide()
			if !c.Admitted {
				t.Fatal("a request after the response to the first was denied")
			}
			if left := c.Zones[0].Results[0].Remaining; left != 8 {
				t.Errorf("remaining %d of 10 after two requests, want 8", left)
			}
			both[0].Finish(context.Background(), &c.Zones[0], 0)
		})
	}
}
