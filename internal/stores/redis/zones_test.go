package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestManyZones decides checks whose numbers of zones and keys do not fit into a byte,
// beside others in the same calls: every zone is charged, or none.
func TestManyZones(t *testing.T) {
	srv := redistest.Start(t)
	s := newTestShared(t, srv, func() int64 { return time.Now().UnixMicro() })
	ctx := context.Background()
	counters := make([]*stores.Counter, 700)
	for i := range counters {
		if i%2 == 0 {
			counters[i] = kit.TenPerHour(t, fmt.Sprint("z", i), false)
		} else {
			counters[i] = holdingCounter(t, fmt.Sprint("z", i))
		}
	}
	key := uint64(0)
	for _, n := range []int{1, 2, 127, 128, 129, 170, 171, 255, 256, 257, 300, 512, 700} {
		key++
		check := func(cost int64) *stores.Check {
			c := new(stores.Check)
			for _, counter := range counters[:n] {
				c.Zones = append(c.Zones, storekit.CheckOfKey(counter, key).Zones[0])
			}
			c.Zones[n-1].Cost = cost
			return c
		}
		wantAll := func(what string, c *stores.Check, charged bool, left int64) {
			t.Helper()
			for i := range c.Zones {
				if z := &c.Zones[i]; z.Charged != charged || i < n-1 && z.Results[0].Remaining != left {
					t.Fatalf("%d zones, %s: zone %d is charged %v with %d left, want %v and %d", n, what, i, z.Charged, z.Results[0].Remaining, charged, left)
				}
			}
		}
		denied, admitted, peek := check(11), check(1), check(1)
		s.Decide(ctx, denied)
		wantAll("the last denies", denied, false, 10)
		peek.Peek = true
		s.Decide(ctx, peek)
		wantAll("peek", peek, false, 10)
		keys, op := encodeCheck("diana", peek)
		next, plain := encodeCheck("diana", storekit.CheckOfKey(counters[0], uint64(1000+n)))
		if _, err := s.conn.callOnce(ctx, append(keys, next...), op, plain); err != nil { // in one call
			t.Fatal(err)
		}
		if srv.Client().Exists(ctx, next[0]).Val() != 1 {
			t.Errorf("%d zones: the check behind them was not charged", n)
		}
		s.Decide(ctx, admitted)
		wantAll("admitted", admitted, true, 9)
		for i := range admitted.Zones {
			if z := &admitted.Zones[i]; z.Permit.Taken {
				s.Finish(ctx, z, 0)
			}
		}
	}
}
