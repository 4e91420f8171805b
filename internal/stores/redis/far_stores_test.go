package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// farCase is a Redis at a distance that two instances share, and which they allow some time.
type farCase struct {
	*far
	t    *testing.T
	near *Store // another instance, at the Redis

	start func() // other instances, with another Redis
}

// TestFarStores runs what a store does with a Redis at several distances, which does not always answer in time:
// with each timeout, whatever is late, nothing is charged twice or forgotten.
func TestFarStores(t *testing.T) {
	var all sync.WaitGroup
	few := make(chan struct{}, 6) // at once, so that they do not make each other late
	for _, ms := range []int{2, 8, 12, 20} {
		for _, rare := range []bool{false, true} {
			for _, timeout := range []int{10, 25, 100} {
				all.Go(func() {
					few <- struct{}{}
					defer func() { <-few }()
					t.Run(fmt.Sprintf("%dms, rare %v, of %dms", ms, rare, timeout), func(t *testing.T) {
						runFar(t, time.Duration(ms)*time.Millisecond, rare, time.Duration(timeout)*time.Millisecond)
					})
				})
			}
		}
	}
	all.Wait()
}

func runFar(t *testing.T, way time.Duration, rare bool, timeout time.Duration) {
	f := farCase{t: t}
	f.start = func() {
		f.far = startFar(t, 2, way, func(o *Options) { o.Timeout, o.Lease = timeout, 50*time.Millisecond })
		f.near = newTestShared(t, f.srv, func() int64 { return time.Now().UnixMicro() })
		f.Set(way, rare)
		f.connected(t)
	}
	f.start()
	f.isExact()
	f.denies()
	f.leases()
	f.owesWhileHeld()
	f.resets()
	f.putsBack()
	f.reloads()
}

// used returns how much of a key of a counter Redis has charged.
func (f *farCase) used(c *stores.Counter) int64 {
	check := storekit.CheckOfKey(c, 7)
	check.Peek = true
	if f.near.Decide(context.Background(), check); check.Mode != stores.ModeShared {
		f.t.Fatalf("mode %v of an instance at the Redis", check.Mode)
	}
	return c.Rules[0].Limit() - check.Zones[0].Results[0].Remaining
}

// loses repeats a trial, with counters of its own, until at most so much of what was admitted is counted as not
// charged. On a busy machine it may be more, but not always, and not of other instances, too: those that Redis was away
// for pause longer and longer.
func (f *farCase) loses(may int64, zone string, trial func(c []*stores.Counter) (uncharged int64)) {
	f.t.Helper()
	const trials = 10
	var all []int64
	for i := range trials {
		f.uncharged() // what was late before is no matter of the trial
		all = append(all, trial(f.counter(f.t, fmt.Sprint(zone, " ", i), 1000)))
		if all[i] <= may {
			return
		}
		for n, s := range f.all {
			up, shared, down := s.State()
			f.t.Logf("%s: trial %d, %d counted as not charged; instance %d: up %v, %v, %v", zone, i, all[i], n, up, shared, down)
		}
		if i == trials/2-1 {
			f.start()
		}
	}
	f.t.Errorf("%s: %v counted as not charged in %d trials", zone, all, trials)
}

// charged waits until what was admitted is charged, or counted as not charged, and is not more. It returns how much
// was counted so.
func (f *farCase) charged(c []*stores.Counter, want int64) (uncharged int64) {
	f.t.Helper()
	var used int64
	for end := time.Now().Add(time.Minute); used+uncharged < want && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		used, uncharged = f.used(c[0]), uncharged+f.uncharged()
	}
	time.Sleep(50 * time.Millisecond) // for what would be charged twice
	used = f.used(c[0])
	if used+uncharged < want && slices.ContainsFunc(c, owes) { // the machine is too busy for Redis to be used again
		return want - used
	}
	if used > want || used+uncharged < want {
		f.t.Errorf("%s: %d of %d charged, %d counted as not charged", c[0].Zone, used, want, uncharged)
	}
	return uncharged
}

// uncharged returns what was counted as not charged since the last time.
func (f *farCase) uncharged() (sum int64) {
	for _, told := range f.told {
		_, more := told.sinceLast()
		sum += more
	}
	return sum
}

func (f *farCase) isExact() {
	f.loses(0, "exact", func(c []*stores.Counter) int64 {
		f.checks(c, 40, 200, oneKey)
		return f.charged(c, 40)
	})
}

func (f *farCase) denies() {
	const limit = 10
	c := f.counter(f.t, "denies", limit)
	d := f.checks(c, 40, 200, oneKey)
	switch n := d.admitted.Load(); {
	case d.fallback.Load() == 0 && n != limit:
		f.t.Errorf("%d admitted of a limit of %d, all in Redis", n, limit)
	case n < limit/2 || n > 2*limit: // one share, and twice the limit
		f.t.Errorf("%d admitted of a limit of %d", n, limit)
	}
}

func (f *farCase) leases() {
	const limit = 100
	var all []*stores.Counter
	for range f.far.all {
		c := kit.NewTestCounter(f.t, "leases", 0, false, nil, storekit.RuleSpec{
			Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1, Lease: 50_000},
		})
		c.Lease = 50_000
		all = append(all, c)
	}
	d := f.checks(all, 300, 1000, oneKey)
	if n, most := d.admitted.Load(), int64(limit); n > 2*most || d.fallback.Load() == 0 && n > most { // what is leased last may end unused
		f.t.Errorf("%d admitted with leases of a limit of %d", n, limit)
	}
}

// mayBeLost is how many calls may have lost their replies to a stall, if that is longer than late replies are
// read for: those in flight at both instances, with what waited to be sent with them.
const mayBeLost = 20

// owesWhileHeld has Redis stall for longer than a breaker waits.
func (f *farCase) owesWhileHeld() {
	f.loses(mayBeLost, "owes", func(c []*stores.Counter) int64 {
		f.checks(c, 10, 200, oneKey)
		pass := f.Stall()
		f.checks(c, 30, 100, oneKey)
		pass()
		return f.charged(c, 40)
	})
}

// resets forgets a key at one instance, which the other is told.
func (f *farCase) resets() {
	f.loses(0, "resets", func(c []*stores.Counter) (uncharged int64) {
		f.checks(c, 20, 200, oneKey)
		uncharged = f.charged(c, 20)
		key := storekit.CheckOfKey(c[0], 7).Zones[0].Key
		waitFor(f.t, "the reset", func() bool { // on a busy machine, Redis may be away meanwhile
			return f.all[0].Reset(context.Background(), c[0].Zone, c[:1], key) == nil
		})
		if n := f.used(c[0]); n != 0 {
			f.t.Errorf("%d charged after a reset", n)
		}
		time.Sleep(100 * time.Millisecond) // until the other is told
		f.checks(c, 10, 200, oneKey)
		return uncharged + f.charged(c, 10)
	})
}

// putsBack has Redis lose its memory. What instances were told of a key is charged again, and no more.
func (f *farCase) putsBack() {
	c := f.counter(f.t, "puts back", 1000)
	for i, s := range f.all {
		storekit.Adopt(f.t, s, c[i])
	}
	told := f.checks(c, 20, 100, oneKey).fallback.Load() == 0 // the last reply
	f.charged(c, 20)
	if err := f.srv.Client().FlushAll(context.Background()).Err(); err != nil {
		f.t.Fatal(err)
	}
	var used int64
	for end := time.Now().Add(10 * time.Second); told && used < 20 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		used = f.used(c[0])
	}
	if used > 20 || told && used < 20 {
		f.t.Errorf("%d of 20 are put back", used)
	}
}

// reloads replaces the store of an instance while Redis stalls, in another configuration.
func (f *farCase) reloads() {
	f.loses(mayBeLost, "reloads", func(c []*stores.Counter) int64 {
		f.checks(c, 10, 200, oneKey)
		old := f.all[0]
		o := *old.o
		o.PoolSize++
		next := New(o, f.told[0])
		f.t.Cleanup(func() { _ = next.Destruct() })
		pass := f.Stall()
		f.checks(c, 20, 200, oneKey)
		next.Begin(old)
		next.BeginAs(old)
		next.Start(1)
		old.PassOn(next)
		_ = old.Destruct()
		f.all[0] = next
		time.Sleep(50 * time.Millisecond)
		pass()
		f.checks(c, 10, 200, oneKey)
		return f.charged(c, 40)
	})
}
