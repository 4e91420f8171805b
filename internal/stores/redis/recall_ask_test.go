package redis

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// recalling is two instances, of which the first denies without a call, and what it was asked last.
type recalling struct {
	*fleet
	t    *testing.T
	c    *stores.Counter // ten an hour
	gate *gate           // of the first instance; nil: it has none yet
}

func newRecalling(t *testing.T, srv *redistest.Server, name string) *recalling {
	t.Helper()
	r := &recalling{newFleet(t, srv, 2), t, kit.TenPerHour(t, name, false), nil}
	r.v.conn = r.all[0].conn
	r.v.now += storekit.Hour // what earlier fleets did is over
	r.v.flush(t)
	r.decide(0, r.c, stores.Key{Hi: 2, Lo: 2}, 1) // connects
	return r
}

// ask decides a cost at the first instance. It reports whether Redis was called.
func (r *recalling) ask(z stores.ZoneCheck) (check *stores.Check, called bool) {
	r.v.now++
	z.Key, z.Tag, z.Rules = stores.Key{Hi: 1, Lo: 1}, stores.Key{Hi: 1, Lo: 1}, nil
	check = &stores.Check{Zones: []stores.ZoneCheck{z}}
	r.v.tick()
	r.all[0].Decide(context.Background(), check)
	return check, r.v.called()
}

// TestRecallAsks has a key denied without a call, but for one circumstance in which what Redis last said of it
// is not what Redis would say now.
func TestRecallAsks(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 1}
	for name, circumstance := range map[string]func(*recalling) stores.ZoneCheck{
		"none": func(r *recalling) stores.ZoneCheck { return stores.ZoneCheck{Counter: r.c, Cost: 2} },
		"another instance holds cost": func(r *recalling) stores.ZoneCheck {
			holding := kit.TenPerHour(r.t, "another instance holds cost", true)
			r.decide(1, holding, k, 1)
			z := stores.ZoneCheck{Counter: r.c, Cost: 2, Holding: stores.Holding{SeesHeld: true}}
			r.all[0].forgetSaid()
			r.ask(z)
			return z
		},
		"Redis has lost the key": func(r *recalling) stores.ZoneCheck {
			r.ask(stores.ZoneCheck{Counter: r.c, Cost: 1}) // all ten
			r.v.flush(r.t)
			r.decide(1, kit.TenPerHour(r.t, "Redis has lost the key", false), k, 1)
			r.all[0].forgetSaid()
			if check, _ := r.ask(stores.ZoneCheck{Counter: r.c, Cost: 8}); !check.Admitted {
				r.t.Errorf("what Redis does not know any more is denied: %+v", check.Zones[0])
			}
			return stores.ZoneCheck{Counter: r.c, Cost: 2}
		},
		"another override applies": func(r *recalling) stores.ZoneCheck {
			other := kit.TenPerHour(r.t, "another override applies", false)
			other.Table, other.Override = r.c.Table, 7
			return stores.ZoneCheck{Counter: other, Cost: 2}
		},
		"the limit is that of the request": func(r *recalling) stores.ZoneCheck {
			r.c.Base = r.c
			return stores.ZoneCheck{Counter: r.c, Cost: 2}
		},
		"the response was charged": func(r *recalling) stores.ZoneCheck {
			z := storekit.CheckOf(9, r.c).Zones[0]
			z.Charged = true
			r.v.tick()
			r.all[0].Finish(context.Background(), &z, 1)
			return stores.ZoneCheck{Counter: r.c, Cost: 2}
		},
	} {
		r := newRecalling(t, srv, name)
		if check, called := r.ask(stores.ZoneCheck{Counter: r.c, Cost: 9}); !check.Admitted || !called {
			t.Fatalf("%s: 9 of 10: admitted %v, called Redis %v", name, check.Admitted, called)
		}
		if check, called := r.ask(circumstance(r)); check.Admitted || called != (name != "none") {
			t.Errorf("%s: admitted %v, called Redis %v", name, check.Admitted, called)
		}
	}
}

// slowReply moves the clock of this process on before a reply arrives.
type slowReply struct {
	v    *virtual
	took int64
}

func (h slowReply) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h slowReply) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		defer func() { h.v.now += h.took }()
		return next(ctx, cmd)
	}
}

func (h slowReply) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// TestRecallOfAFarRedis denies a key of a Redis whose replies take 12 ms, until its retry by Redis' clock and not
// longer.
func TestRecallOfAFarRedis(t *testing.T) {
	r := newRecalling(t, redistest.Start(t), "far")
	const window, took = 200_000, 12_000
	r.c = kit.NewTestCounter(t, "far", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 1, Window: window, Cost: 1}})
	r.all[0].hook(slowReply{r.v, took})
	begun := r.v.now
	for r.v.now != begun+1+took { // again if it took more than one call: the script was loaded, or a connection had ended
		r.v.now += window
		begun = r.v.now
		r.ask(stores.ZoneCheck{Counter: r.c, Cost: 1})
	}
	charged := r.v.now - took
	for _, at := range []int64{took + 1, window - 1, window} {
		r.v.now = charged + at - 1
		check, called := r.ask(stores.ZoneCheck{Counter: r.c, Cost: 1})
		if check.Admitted != (at == window) || called != check.Admitted {
			t.Errorf("%d us after the charge: admitted %v, called Redis %v", at, check.Admitted, called)
		}
	}
}

// TestWaitOfAFarRedis denies a key of a Redis that is 12 ms away, wherever on the way they are spent: the wait
// that is told without a call, also beside a lease, does not end before the denial by Redis' clock, and at most 12 ms after it.
func TestWaitOfAFarRedis(t *testing.T) {
	const window, took = 2_000_000, 12_000
	srv := redistest.Start(t)
	for _, there := range []int64{0, took / 2, took} {
		r := newRecalling(t, srv, "wait")
		r.c = kit.NewTestCounter(t, "wait", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 1, Window: window, Cost: 1}})
		r.all[0].hook(slowReply{r.v, took})
		var charged int64
		for range 2 { // the first call loads the script
			r.v.now += window
			r.v.conn.seq.Store(uint64(r.v.now+there) - 1)
			charged = r.v.now + there
			if check := storekit.CheckOf(1, r.c); !r.decides(check) {
				t.Fatalf("%d us there: %+v", there, check.Zones[0].Results)
			}
		}
		r.v.conn.seq.Store(uint64(r.v.now+there) - 1)
		if r.decides(storekit.CheckOf(1, r.c)) {
			t.Fatal("the second request of a window is admitted")
		}
		for _, after := range []int64{1, window / 4} {
			r.v.now += after
			seq := r.v.conn.seq.Load()
			check := storekit.CheckOf(1, r.c)
			if r.decides(check) || r.v.conn.seq.Load() != seq {
				t.Fatalf("%d us there: admitted, or decided by a call: %+v", there, check.Zones[0].Results)
			}
			leased := storekit.CheckOf(1, r.c)
			(&leasing{decider: r.all[0].decider}).deny(&leased.Zones[0], &leaseAnswer{}, r.v.now)
			left := charged + window - r.v.now
			for _, told := range []int64{check.Zones[0].Results[0].Retry, leased.Zones[0].Results[0].Retry} {
				if told < left || told > left+took {
					t.Errorf("%d us there: %d us are left, told %d", there, left, told)
				}
			}
		}
	}
}

// decides decides a check at the first instance. It reports whether it is admitted.
func (r *recalling) decides(check *stores.Check) bool {
	r.all[0].Decide(context.Background(), check)
	return check.Admitted
}
