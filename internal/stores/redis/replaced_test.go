package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// TestReplacedTablesOweNothing replaces tables without Redis, again and again. Only what
// the one owes that is still counted in is charged.
func TestReplacedTablesOweNothing(t *testing.T) {
	const tables = 24
	f := newFleet(t, redistest.Start(t), 1)
	f.set(0, faultOOM)
	for i := range tables {
		c := f.counters(t, "replaced", eachAlgorithm()["gcra"])[0]
		f.decide(0, c, stores.Key{Hi: 1, Lo: uint64(i)}, 1)
		if i < tables-1 {
			_ = memory.TableOf(c).Destruct()
		}
	}
	f.set(0, noFault)
	f.v.now += rampLasts
	f.all[0].setTime(f.v.now)
	f.all[0].payDebts(context.Background())
	if n := len(f.v.client.Keys(t.Context(), "*:replaced:*").Val()); n != 1 {
		t.Errorf("%d keys in Redis, want 1", n)
	}
}
