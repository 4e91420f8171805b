package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// TestReplacedTablesOweUnderABound replaces tables without Redis, again and again. Those whose
// kind is still counted owe up to a bound, the others nothing, also while Redis is away.
func TestReplacedTablesOweUnderABound(t *testing.T) {
	const tables = 3 * maxReplaced
	srv := redistest.Start(t)
	for _, counted := range []bool{true, false} {
		f, kind := newFleet(t, srv, 1), new(memory.Kind)
		f.set(0, faultOOM)
		hands := f.all[0].fallback.hands
		for i := range tables {
			c := f.counters(t, "replaced", eachAlgorithm()["gcra"])[0]
			memory.TableOf(c).SetKind(kind)
			f.decide(0, c, stores.Key{Hi: 1, Lo: uint64(i)}, 1)
			_ = memory.TableOf(c).Destruct()
		}
		want := maxReplaced
		if !counted {
			_ = kind.Destruct()
			want = 0
		}
		hands.pay(context.Background())
		if n := len(hands.tables); n != want {
			t.Errorf("counted %v: %d tables owe, want %d", counted, n, want)
		}
		f.set(0, noFault)
		f.v.now += ramp.Microseconds()
		f.all[0].conn.seq.Store(uint64(f.v.now) - 1)
		hands.pay(context.Background())
		if n := len(f.v.client.Keys(t.Context(), "*:replaced:*").Val()); n != want {
			t.Errorf("counted %v: %d keys in Redis, want %d", counted, n, want)
		}
		f.v.flush(t)
	}
}
