package redisim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/redis"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

var kit = storekit.Kit{NewTable: func(rules []algorithms.Rule, maxKeys int64) stores.Table {
	return memory.NewTable(rules, maxKeys)
}}

// quiet is an observer of a store that is made to fail.
type quiet struct{}

func (quiet) StoreUp(string, string)                          {}
func (quiet) StoreDown(string, string, stores.Failure, error) {}
func (quiet) StoreError(string, stores.Failure, error)        {}
func (quiet) ClockSteps(string)                               {}
func (quiet) Live(string, int)                                {}
func (quiet) StoreWarning(string, string, string)             {}
func (quiet) Uncharged(string, stores.Uncharged, int64)       {}

// load makes random checks in stores of the plugin.
type load struct {
	t      *testing.T
	r      *rand.Rand
	stores []*redis.Store
	zones  []*stores.Counter
}

func (y *relay) newStore(lease time.Duration) *redis.Store {
	s := redis.New(redis.Options{
		Name: "redis", Lease: lease, Clock: func() int64 { return time.Now().UnixMicro() },
		ConnOptions: redis.ConnOptions{
			Addresses: []string{y.listen.Addr().String()}, Prefix: "diana", Timeout: 20 * time.Second, DialTimeout: 20 * time.Second,
		},
	}, quiet{})
	s.Start(0)
	y.t.Cleanup(func() { _ = s.Destruct() })
	return s
}

// randomCounter returns a zone of random rules, which may hold permits or costs, delay,
// or be leased.
func randomCounter(t *testing.T, r *rand.Rand, name string) *stores.Counter {
	hold, lease := r.IntN(4) == 0, r.IntN(4) == 0
	var specs []storekit.RuleSpec
	for range 1 + r.IntN(3)*r.IntN(2) {
		s := storekit.RandomRule(r, !hold && !lease, hold)
		if r.IntN(3) == 0 { // long enough for times to live and clock steps to matter
			s.Spec.Window *= 1000
			if b, is := s.Alg.(*algorithms.TokenBucket); is {
				b.Step *= 1000
			}
		}
		specs = append(specs, s)
	}
	inFlight := int64(0)
	if r.IntN(4) == 0 {
		inFlight = 1 + r.Int64N(5)
	}
	lasts := int64(0)
	if lease {
		lasts = leased(r, specs)
	}
	c := kit.NewTestCounter(t, name, inFlight, hold, nil, specs...)
	c.Lease = lasts
	return c
}

// leased has rules compiled for leases, if all can be, and returns for how long they are.
func leased(r *rand.Rand, specs []storekit.RuleSpec) int64 {
	lasts := 1 + r.Int64N(50_000)
	for i := range specs {
		sp := specs[i].Spec
		sp.Lease = lasts
		if _, err := specs[i].Alg.Compile(sp); err != nil {
			return 0
		}
	}
	for i := range specs {
		specs[i].Spec.Lease = lasts
	}
	return lasts
}

// check makes a random check and finishes it.
func (l *load) check(r *rand.Rand) {
	key := stores.Key{Hi: 1 + uint64(r.IntN(3)), Lo: 7}
	check := &stores.Check{Peek: r.IntN(20) == 0}
	for range 1 + r.IntN(2)*r.IntN(3) {
		check.Zones = append(check.Zones, stores.ZoneCheck{
			Counter: l.zones[r.IntN(len(l.zones))], Subject: stores.Subject{Key: key, Tag: key}, Cost: 1 + r.Int64N(3)*int64(r.IntN(2)),
		})
	}
	if r.IntN(4) == 0 {
		check.Shadows = 1 + r.IntN(len(check.Zones))
	}
	if z := &check.Zones[0]; len(check.Zones) == 1 && r.IntN(5) == 0 {
		if permit, _ := z.Holds(); !permit {
			z.Lease.Want = 1 + r.Int64N(20)
		}
	}
	s := l.stores[r.IntN(len(l.stores))]
	s.Decide(context.Background(), check)
	if r.IntN(4) == 0 {
		time.Sleep(time.Duration(r.Int64N(3000)) * time.Microsecond)
	}
	for i := range check.Zones {
		if z := &check.Zones[i]; z.Charged {
			s.Finish(context.Background(), z, r.Int64N(4)*int64(r.IntN(2)))
		}
	}
}

// TestPluginSeesTheSame makes random checks of random zones with two stores of the plugin,
// while keys are lost, reset and overwritten, scripts forgotten, replies lost and clocks
// stepped. The simulated server replies what the real one replies, and holds the same.
func TestPluginSeesTheSame(t *testing.T) {
	y := newRelay(t)
	r := storekit.Seeded(t)
	l := &load{t: t, r: r, stores: []*redis.Store{y.newStore(0), y.newStore(50 * time.Millisecond)}}
	for round := range storekit.Operations(t) / 300 {
		l.zones = nil
		for i := range 6 {
			l.zones = append(l.zones, randomCounter(t, r, fmt.Sprintf("z%d-%d", round, i)))
		}
		y.lose.Store(int64(r.IntN(2) * 50))
		for range 15 {
			l.burst(20)
			y.disturb(r, l)
		}
		if t.Failed() {
			break
		}
	}
	y.report()
}

// burst makes checks of which some share calls.
func (l *load) burst(n int) {
	var all sync.WaitGroup
	for range 4 {
		r := rand.New(rand.NewPCG(l.r.Uint64(), 1))
		all.Go(func() {
			for range n / 4 {
				l.check(r)
			}
		})
	}
	all.Wait()
}

// disturb does to both servers what may happen to one.
func (y *relay) disturb(r *rand.Rand, l *load) {
	p, err := y.dial()
	if err != nil {
		y.t.Fatal(err)
	}
	defer p.close()
	keys, _ := y.admin.Keys(y.t.Context(), "*").Result()
	some := "none"
	if len(keys) > 0 {
		some = keys[r.IntN(len(keys))]
	}
	switch r.IntN(12) {
	case 0:
		y.both(p, []string{"FLUSHALL"})
	case 1:
		y.both(p, []string{"SCRIPT", "FLUSH"})
	case 2:
		y.both(p, []string{"DEL", some})
	case 3:
		y.both(p, []string{"SET", some, "other", "PX", "3000"})
	case 4:
		y.both(p, []string{"DEL", some})
		y.both(p, []string{"RPUSH", some, "1"})
		y.both(p, []string{"PEXPIRE", some, "3000"})
	case 5:
		y.step(time.Duration(r.Int64N(20_000)) * time.Millisecond)
	case 6:
		y.step(-time.Duration(r.Int64N(20_000)) * time.Millisecond)
	case 7:
		y.step(time.Duration(r.Int64N(7200)-3600) * time.Second)
	case 8:
		_ = l.stores[0].Reset(y.t.Context(), "z", l.zones[:2], stores.Key{Hi: 1 + uint64(r.IntN(3)), Lo: 7})
	}
}
