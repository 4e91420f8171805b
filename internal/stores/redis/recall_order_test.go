package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// gate holds the reply to one call back.
type gate struct {
	hold          atomic.Bool
	ran, released chan struct{}
}

func (h *gate) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h *gate) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		holds := h.hold.Swap(false)
		err := next(ctx, cmd)
		if holds {
			close(h.ran)
			<-h.released
		}
		return err
	}
}

func (h *gate) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// overtaken has the first instance ask for a cost, and do something before the reply arrives.
func (r *recalling) overtaken(c *stores.Counter, cost int64, do func()) {
	h := r.gate
	if h == nil {
		h = new(gate)
		r.all[0].hook(h)
		r.gate = h
	}
	h.ran, h.released = make(chan struct{}), make(chan struct{})
	h.hold.Store(true)
	k, done := stores.Key{Hi: 1, Lo: 1}, make(chan struct{})
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: cost}}}
	r.v.now++
	r.v.tick()
	go func() {
		r.all[0].Decide(context.Background(), check)
		close(done)
	}()
	<-h.ran
	do()
	close(h.released)
	<-done
}

func tenAnHour(t *testing.T, name string, a algorithms.Algorithm) *stores.Counter {
	t.Helper()
	return kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: a, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
}

// TestRecallAfterAnOlderReply has a key reset while the reply to a denial is on its way, and charged again before
// that arrives. It does not deny the key.
func TestRecallAfterAnOlderReply(t *testing.T) {
	srv := redistest.Start(t)
	for name, a := range map[string]algorithms.Algorithm{
		"fixed_window": &algorithms.FixedWindow{}, "gcra": &algorithms.GCRA{}, "sliding_log": &algorithms.SlidingLog{}, "sliding_window": &algorithms.SlidingWindow{},
	} {
		r := newRecalling(t, srv, "older-"+name)
		c := tenAnHour(t, "older-"+name, a)
		r.ask(stores.ZoneCheck{Counter: c, Cost: 9})
		r.all[0].forgetSaid()
		r.v.now += 2
		r.overtaken(c, 2, func() {
			r.v.now += 2
			r.v.tick()
			if err := r.all[0].Reset(context.Background(), c.Zone, []*stores.Counter{c}, stores.Key{Hi: 1, Lo: 1}); err != nil {
				t.Error(err)
			}
			r.v.now += 2
			if check, called := r.ask(stores.ZoneCheck{Counter: c, Cost: 1}); !check.Admitted || !called {
				t.Errorf("%s: 1 of 10: admitted %v, called Redis %v", name, check.Admitted, called)
			}
		})
		if check, called := r.ask(stores.ZoneCheck{Counter: c, Cost: 2}); !check.Admitted {
			t.Errorf("%s: denied with 1 of 10 used, called Redis %v: %+v", name, called, check.Zones[0].Results)
		}
	}
}

// TestRecallAfterAnOlderLimit has a limit raised while the reply to a denial is on its way. What Redis said
// under the new one stays.
func TestRecallAfterAnOlderLimit(t *testing.T) {
	r := newRecalling(t, redistest.Start(t), "limit")
	spec := storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 10}, Spec: algorithms.Spec{Limit: 1, Window: storekit.Hour, Cost: 1}}
	before := kit.NewTestCounter(t, "limit", 0, false, nil, spec)
	spec.Spec.Limit = 3600
	after := kit.NewTestCounter(t, "limit", 0, false, before.Table, spec)
	r.ask(stores.ZoneCheck{Counter: before, Cost: 8})
	r.all[0].forgetSaid()
	r.overtaken(before, 3, func() {
		if check, called := r.ask(stores.ZoneCheck{Counter: after, Cost: 1}); !check.Admitted || !called {
			t.Errorf("9 of 10: admitted %v, called Redis %v", check.Admitted, called)
		}
	})
	check, _ := r.ask(stores.ZoneCheck{Counter: after, Cost: 3})
	if retry := check.Zones[0].Results[0].Retry; check.Admitted || retry > 2_000_000 {
		t.Errorf("admitted %v, denied for %d us, want at most 2 s", check.Admitted, retry)
	}
}

// TestRecallUnderAnotherLimit has the limit of a denied key raised, and another instance charge it under the new
// one: from then on the level drains faster.
func TestRecallUnderAnotherLimit(t *testing.T) {
	r := newRecalling(t, redistest.Start(t), "raised")
	spec := storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 10}, Spec: algorithms.Spec{Limit: 1, Window: storekit.Hour, Cost: 1}}
	before := kit.NewTestCounter(t, "raised", 0, false, nil, spec)
	spec.Spec.Limit = 3600
	after, others := kit.NewTestCounter(t, "raised", 0, false, before.Table, spec), kit.NewTestCounter(t, "raised", 0, false, nil, spec)
	r.ask(stores.ZoneCheck{Counter: before, Cost: 9})
	r.v.now++
	r.decide(1, others, stores.Key{Hi: 1, Lo: 1}, 1)
	if check, called := r.ask(stores.ZoneCheck{Counter: after, Cost: 2}); check.Admitted || !called {
		t.Errorf("admitted %v, called Redis %v", check.Admitted, called)
	}
}

// TestRecallAfterAChangeOfRules asks Redis again for a denied key once rules have changed.
func TestRecallAfterAChangeOfRules(t *testing.T) {
	r := newRecalling(t, redistest.Start(t), "changed")
	z := stores.ZoneCheck{Counter: r.c, Cost: 6}
	r.ask(z)
	if _, called := r.ask(z); called {
		t.Error("Redis is asked though nothing has changed")
	}
	storekit.Adopt(t, r.all[0], r.c)
	if _, called := r.ask(z); !called {
		t.Error("Redis is not asked after a change of rules")
	}
}

// TestRecallAfterAnOlderReplyThanACharge charges a key after a response while the reply to an earlier denial is on its
// way, whether Redis has told the outcome of the charge or not. What that reply says denies nobody: it knows nothing of
// the charge.
func TestRecallAfterAnOlderReplyThanACharge(t *testing.T) {
	srv := redistest.Start(t)
	for name, a := range map[string]algorithms.Algorithm{
		"fixed_window": &algorithms.FixedWindow{}, "gcra": &algorithms.GCRA{}, "sliding_log": &algorithms.SlidingLog{}, "sliding_window": &algorithms.SlidingWindow{},
	} {
		for _, lost := range []fault{noFault, faultReply} {
			what := fmt.Sprintf("%s, fault %d", name, lost)
			r := newRecalling(t, srv, "charge-"+name)
			c, other := tenAnHour(t, "charge-"+name, a), tenAnHour(t, "connects", a)
			r.overtaken(other, 1, func() { r.ask(stores.ZoneCheck{Counter: other, Cost: 1}) }) // opens two connections
			check, _ := r.ask(stores.ZoneCheck{Counter: c, Cost: 7})
			r.all[0].forgetSaid()
			r.v.now += 2
			r.overtaken(c, 5, func() {
				r.v.now += 2
				r.v.tick()
				r.set(0, lost)
				r.all[0].Finish(context.Background(), &check.Zones[0], 2)
				r.set(0, noFault)
			})
			r.v.now += 2
			check, called := r.ask(stores.ZoneCheck{Counter: c, Cost: 4})
			if left := check.Zones[0].Results[0].Remaining; check.Admitted || !called || left != 1 {
				t.Errorf("%s: admitted %v with %d left, called Redis %v; want a denial by Redis with 1", what, check.Admitted, left, called)
			}
			if check, called = r.ask(stores.ZoneCheck{Counter: c, Cost: 2}); check.Admitted || called {
				t.Errorf("%s, again: admitted %v, called Redis %v; want a denial without a call", what, check.Admitted, called)
			}
		}
	}
}
