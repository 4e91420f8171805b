package redis

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/observers"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
)

// TestUnusedStoreIsPaid has a store owe what it admitted alone, and then no configuration use it and its zone any
// more. What it is owed is charged when Redis is back.
func TestUnusedStoreIsPaid(t *testing.T) {
	f := newResetFleet(t, redistest.Start(t), "unused", resetSpecs()["gcra"])
	f.set(1, faultRefused)
	owed := f.use(1, 10)
	f.all[1].Observe(observers.Ended{Observer: f.uncharged})
	if err := memory.TableOf(f.c[1]).Destruct(); err != nil {
		t.Fatal(err)
	}
	f.all[1].payDebts(context.Background())
	f.back()
	if left := f.left(t); owed == 0 || left != int64(100-owed) {
		t.Errorf("%d left in Redis after %d were admitted alone", left, owed)
	}
}
