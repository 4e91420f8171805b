package redis

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// lateHook runs calls at once, and has their replies wait until goOn is closed. The greeting of a new connection
// does not wait: a call behind it would not be sent in time.
type lateHook struct {
	faultHook
	goOn chan bool
}

func (h *lateHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" {
			<-h.goOn
		}
		return err
	}
}

// lateLosses adds up what was reported as not charged, by replies that come beside requests.
type lateLosses struct {
	noObserver
	cost atomic.Int64
}

func (o *lateLosses) Uncharged(_ string, _ stores.Uncharged, cost int64) { o.cost.Add(cost) }

// TestLateReplyToADebt has an instance that did not hear of a reset, or whose key has a value of another
// program, send its debt with a check that has no reply in time. The late one says that the debt was not
// charged: it is counted, or owed again.
func TestLateReplyToADebt(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range resetSpecs() {
		for _, foreign := range []bool{false, true} {
			f, losses := newResetFleet(t, srv, "late-"+name, spec), new(lateLosses)
			f.v.flush(t)
			s, wantLost, wantUsed := f.all[1], int64(0), int64(1)
			s.Observe(losses)
			f.use(1, 20)
			f.set(1, faultRefused)
			owed := int64(f.use(1, 10))
			key, _ := f.names()
			if foreign {
				f.v.client.Del(t.Context(), key)
				f.v.client.RPush(t.Context(), key, "other")
				wantUsed += 20 + owed
			} else {
				f.reset(t)
				wantLost = owed
			}
			f.set(1, noFault)
			f.v.now += 2 * rampLasts
			f.decide(1, f.c[1], stores.Key{Hi: 3, Lo: 4}, 1) // which brings Redis' time
			late := &lateHook{goOn: make(chan bool)}
			s.hook(late)
			s.o.Timeout = 50 * time.Millisecond
			s.conn.nodes.first.breaker.troubled(time.Now()) // nobody waits for a reply then
			if check := f.decide(1, f.c[1], f.k, 1); check.Mode != stores.ModeFallback {
				t.Fatalf("mode %v", check.Mode)
			}
			close(late.goOn)
			if f.v.client.Type(t.Context(), key).Val() == "list" {
				f.v.client.Del(t.Context(), key)
			}
			waitFor(t, name+": the debt to be charged or counted", func() bool {
				s.setTime(f.v.now)
				s.payDebts(t.Context())
				return 100-f.left(t) == wantUsed && losses.cost.Load() == wantLost
			})
		}
	}
}
