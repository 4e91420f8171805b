package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// far is a Redis at a distance, and instances that call it.
type far struct {
	*redistest.Proxy
	srv  *redistest.Server
	all  []*Store
	told []*farTold // by each
}

// farTold is what a store far from its Redis tells.
type farTold struct {
	noObserver

	mu        sync.Mutex
	errors    map[string]int
	uncharged int64
	zone      string // of which uncharged is; empty: of all
}

func (o *farTold) StoreError(_ string, f stores.Failure, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errors[fmt.Sprint(f, ": ", err)]++
}

func (o *farTold) Uncharged(zone string, _ stores.Uncharged, cost int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.zone == "" || zone == o.zone {
		o.uncharged += cost
	}
}

// only has the charges of other zones left out.
func (o *farTold) only(zone string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.zone = zone
}

// lost returns what was counted as not charged since the last time.
func (o *farTold) lost() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.uncharged
}

// sinceLast returns what was told since the last time.
func (o *farTold) sinceLast() (errors map[string]int, uncharged int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	errors, uncharged = o.errors, o.uncharged
	o.errors, o.uncharged = make(map[string]int), 0
	return errors, uncharged
}

// startFar starts instances with the timeout that is the default.
func startFar(t *testing.T, instances int, round time.Duration, changes ...func(*Options)) *far {
	t.Helper()
	srv := redistest.Start(t)
	f := &far{Proxy: redistest.StartProxy(t, srv.Addr, round), srv: srv}
	for range instances {
		o := Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{f.Addr}, Prefix: "diana", Timeout: 25 * time.Millisecond, DialTimeout: 5 * time.Second,
		}}
		for _, change := range changes {
			change(&o)
		}
		told := &farTold{errors: make(map[string]int)}
		s := New(o, told)
		s.Start(0)
		t.Cleanup(func() { _ = s.Destruct() })
		f.all, f.told = append(f.all, s), append(f.told, told)
	}
	return f
}

// counter returns a counter of a limit per hour for each instance.
func (f *far) counter(t *testing.T, name string, limit int64) (all []*stores.Counter) {
	t.Helper()
	for range f.all {
		all = append(all, kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{
			Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1},
		}))
	}
	return all
}

// decided are the outcomes of checks.
type decided struct {
	shared, fallback, allow, deny, admitted atomic.Int64

	mu   sync.Mutex
	took []time.Duration // each
}

// waits returns how long half of the checks took at most, and 99 of 100.
func (d *decided) waits() (half, most time.Duration) {
	slices.Sort(d.took)
	return d.took[len(d.took)/2].Round(time.Millisecond / 10), d.took[len(d.took)*99/100].Round(time.Millisecond / 10)
}

// add counts a check.
func (d *decided) add(check *stores.Check, took time.Duration) {
	d.mu.Lock()
	d.took = append(d.took, took)
	d.mu.Unlock()
	map[stores.Mode]*atomic.Int64{
		stores.ModeShared: &d.shared, stores.ModeFallback: &d.fallback, stores.ModeAllow: &d.allow, stores.ModeDeny: &d.deny,
	}[check.Mode].Add(1)
	if check.Admitted {
		d.admitted.Add(1)
	}
}

// checks makes checks at even intervals, at each instance in turn, whether those before are
// decided or not. key returns the key of each.
func (f *far) checks(counters []*stores.Counter, n int, perSecond int, key func(i int) uint64) *decided {
	var d decided
	var all sync.WaitGroup
	begin := time.Now()
	for i := range n {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		all.Go(func() {
			at := i % len(f.all)
			check, sent := storekit.CheckOfKey(counters[at], key(i)), time.Now()
			f.all[at].Decide(context.Background(), check)
			d.add(check, time.Since(sent))
		})
	}
	all.Wait()
	return &d
}

func oneKey(int) uint64 { return 7 }

// ready waits until every instance decides in Redis, and is as fast as it gets.
func (f *far) ready(t *testing.T) {
	t.Helper()
	counters := f.counter(t, "ready", 1000)
	for i, s := range f.all {
		waitFor(t, "decided in Redis", func() bool {
			check := storekit.CheckOfKey(counters[i], 1)
			s.Decide(context.Background(), check)
			return check.Mode == stores.ModeShared
		})
	}
	f.checks(counters, 60, 200, oneKey)
}

// usedOf returns how much of a key of a counter Redis has charged, asked for nearby.
func (f *far) usedOf(t *testing.T, name string, limit int64, key uint64) int64 {
	t.Helper()
	near := newTestShared(t, f.srv, func() int64 { return time.Now().UnixMicro() })
	c := kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{
		Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1},
	})
	check := storekit.CheckOfKey(c, key)
	check.Peek = true
	near.Decide(context.Background(), check)
	return limit - check.Zones[0].Results[0].Remaining
}

// tries repeats a trial of which some checks may fail. A machine that is too busy for some milliseconds
// at a time fails others: those that may be under way then are spared, so many for each such time.
func tries(t *testing.T, underWay int64, trial func() (failed, may int64)) {
	t.Helper()
	var failed, may, busy int64
	for range 5 {
		stop := watchTime()
		failed, may = trial()
		if busy = stop(); failed <= may+busy*underWay {
			return
		}
		t.Logf("%d failed, %d may; the machine was busy %d times", failed, may, busy)
	}
	t.Errorf("%d failed, %d may; the machine was busy %d times", failed, may, busy)
}

// watchTime counts how often this process does not run for some milliseconds, until the returned function is
// called.
func watchTime() (stop func() int64) {
	var n int64
	ended, counted := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(counted)
		for last := time.Now(); ; {
			select {
			case <-ended:
				return
			default:
			}
			time.Sleep(time.Millisecond)
			now := time.Now()
			if now.Sub(last) > 4*time.Millisecond {
				n++
			}
			last = now
		}
	}()
	return func() int64 {
		close(ended)
		<-counted
		return n
	}
}

// TestFarRedisDecides asks a Redis that takes up to 20 of the 25 ms that are allowed.
func TestFarRedisDecides(t *testing.T) {
	for _, ms := range []int{2, 5, 8, 12, 20} {
		t.Run(fmt.Sprintf("%dms", ms), func(t *testing.T) {
			f := startFar(t, 1, time.Duration(ms)*time.Millisecond)
			f.ready(t)
			tries(t, 5, func() (failed, may int64) {
				const n = 301
				f.told[0].sinceLast()
				d := f.checks(f.counter(t, "far", 1000), n, 200, oneKey)
				errs, _ := f.told[0].sinceLast()
				half, most := d.waits()
				t.Logf("Redis decided %d of %d over %d connections, half in %v, 99 %% in %v; %v", d.shared.Load(), n, f.Opened.Load(), half, most, errs)
				return n - d.shared.Load(), n / 100
			})
		})
	}
}

// TestFarRedisLimits has a limit in force from the first request on, with all that may follow a failure.
func TestFarRedisLimits(t *testing.T) {
	for _, test := range []struct {
		name string
		on   stores.OnFailure
		rare bool
	}{{"allow", stores.FailAllow, false}, {"allow rare", stores.FailAllow, true}, {"deny", stores.FailDeny, false}} {
		t.Run(test.name, func(t *testing.T) {
			tries(t, 5, func() (failed, may int64) {
				f := startFar(t, 1, 12*time.Millisecond, func(o *Options) { o.OnFailure = test.on })
				f.Set(12*time.Millisecond, test.rare)
				const n, limit = 300, 100
				d := f.checks(f.counter(t, "limits", limit), n, 100, oneKey)
				t.Logf("admitted %d, in Redis %d, denied without it %d", d.admitted.Load(), d.shared.Load(), d.deny.Load())
				if may = 15; test.rare {
					may += n / 10 // which take 36 ms
				}
				return max(d.admitted.Load()-limit, d.deny.Load()), may
			})
		})
	}
}

// TestFarStall holds everything back for 300 ms. Redis decides again soon, over few connections.
func TestFarStall(t *testing.T) {
	f := startFar(t, 3, 12*time.Millisecond)
	f.ready(t)
	counters := f.counter(t, "stall", 1e6)
	tries(t, 50, func() (failed, may int64) {
		opened, pass := f.Opened.Load(), f.Stall()
		f.checks(counters, 60, 200, oneKey)
		pass()
		begin, took := time.Now(), time.Duration(0)
		for shared := int64(0); shared < 19 && took < 10*time.Second; {
			took = time.Since(begin)
			shared = f.checks(counters, 20, 200, oneKey).shared.Load()
		}
		opened = f.Opened.Load() - opened
		t.Logf("all decided in Redis again after %v, %d connections", took, opened)
		return took.Milliseconds() + max(0, opened-60)*1000, 2000 // each of more than 60 connections counts as a second
	})
}

// connected waits until the first instance has sent a heartbeat, and its connections are open.
func (f *far) connected(t *testing.T) {
	t.Helper()
	s := f.all[0]
	waitFor(t, "a heartbeat", func() bool { return s.conn.nodes.first.told.Load() != 0 })
	f.checks(f.counter(t, "ready", 1000), 20, 50, oneKey)
	time.Sleep(200 * time.Millisecond)
	f.told[0].sinceLast()
}

// TestLateRepliesCount asks a Redis that is farther away than the timeout: it has run a call before its
// caller has the reply, or it receives it too late and does not run it. Each charge is made once. A call that
// charges later what these did not may miss its own deadline on a busy machine: then all that it charges is counted
// as not charged, as nobody knows.
func TestLateRepliesCount(t *testing.T) {
	for _, ms := range []int{30, 70} {
		t.Run(fmt.Sprintf("%dms", ms), func(t *testing.T) {
			t.Parallel()
			const n = 50
			tries(t, n, func() (failed, may int64) {
				f := startFar(t, 1, time.Duration(ms)*time.Millisecond)
				f.connected(t)
				f.told[0].only("late") // what was late before is another's
				d := f.checks(f.counter(t, "late", 1000), n, 50, oneKey)
				half, most := d.waits()
				t.Logf("half waited for %v, 99 %% for %v", half, most)
				var used int64
				waitFor(t, "all is charged or counted", func() bool {
					used = f.usedOf(t, "late", 1000, 7)
					return used+f.told[0].lost() >= n
				})
				errs, uncharged := f.told[0].sinceLast()
				t.Logf("%d of %d charged, %d counted as not charged; %v", used, n, uncharged, errs)
				if used > n {
					t.Errorf("%d charged of %d", used, n)
				}
				if f.all[0].isDown() { // though replies come
					failed++
				}
				return failed + n - d.fallback.Load() + uncharged, 0
			})
		})
	}
}

// TestNoChargeIsForgotten has replies that are late, a stall and connections that end with calls under
// way. What is not charged in Redis is counted, and nothing is charged twice.
func TestNoChargeIsForgotten(t *testing.T) {
	t.Parallel()
	f := startFar(t, 1, 12*time.Millisecond)
	f.ready(t)
	f.Set(12*time.Millisecond, true)
	f.told[0].only("forgotten")
	stop := watchTime()
	counters, n := f.counter(t, "forgotten", 1e6), int64(0)
	for _, held := range []time.Duration{0, 60 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond} {
		pass := func() {}
		if held > 0 {
			pass = f.Stall()
		}
		time.AfterFunc(held, pass)
		const some = 200
		d := f.checks(counters, some, 100, oneKey)
		t.Logf("held for %v: Redis decided %d of %d", held, d.shared.Load(), some)
		n += some
	}
	var used int64
	waitFor(t, "all is charged or counted", func() bool {
		used = f.usedOf(t, "forgotten", 1e6, 7)
		return used+f.told[0].lost() >= n
	})
	_, uncharged := f.told[0].sinceLast()
	busy := stop()
	t.Logf("%d charged of %d, %d counted as not charged; the machine was busy %d times", used, n, uncharged, busy)
	if used > n || uncharged > n/20+5*busy {
		t.Errorf("%d charged of %d, %d counted as not charged", used, n, uncharged)
	}
}

// TestLossesAreCountedAfterTheEnd ends a store while a call is under way that never has a reply.
func TestLossesAreCountedAfterTheEnd(t *testing.T) {
	t.Parallel()
	f := startFar(t, 1, 2*time.Millisecond)
	f.connected(t)
	f.told[0].only("ended") // what was late before is another's
	f.all[0].endAtOnce()
	defer f.Stall()()
	f.checks(f.counter(t, "ended", 1000), 1, 1, oneKey)
	if err := f.all[0].Destruct(); err != nil {
		t.Fatal(err)
	}
	var sum int64
	waitFor(t, "the charge is counted as not made", func() bool {
		_, uncharged := f.told[0].sinceLast()
		sum += uncharged
		return sum > 0
	})
	if sum != 1 {
		t.Errorf("%d counted of 1", sum)
	}
}

// TestRequestsGreetNobody opens connections with a password, to a database of a Redis that is far: no request
// waits for more than its own reply.
func TestRequestsGreetNobody(t *testing.T) {
	f := startFar(t, 1, 8*time.Millisecond, func(o *Options) { o.Password, o.DB = "secret", 3 })
	if err := f.srv.Client().ConfigSet(context.Background(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	f.ready(t)
	tries(t, 3, func() (failed, may int64) {
		opened := f.Opened.Load()
		f.all[0].conn.nodes.first.tracker.retire(time.Now())
		f.all[0].conn.fill()
		time.Sleep(150 * time.Millisecond) // until those that are kept ready are
		d := f.checks(f.counter(t, "greeted", 1000), 40, 50, oneKey)
		t.Logf("Redis decided %d of 40, over %d new connections", d.shared.Load(), f.Opened.Load()-opened)
		if f.Opened.Load() == opened {
			t.Error("no connection was replaced")
		}
		return 40 - d.shared.Load(), 0
	})
}

// TestBurstsOpenNoConnection has more requests at a time than connections are open, of a Redis that is so far
// that more calls would be in flight: none waits for a connection to be opened and greeted.
func TestBurstsOpenNoConnection(t *testing.T) {
	tries(t, 8, func() (failed, may int64) {
		f := startFar(t, 1, 8*time.Millisecond)
		f.connected(t)
		n, counters := f.all[0].conn.nodes.first, f.counter(t, "bursts", 1000)
		waitFor(t, "more calls to be in flight", func() bool { return n.distance.fly.Load() > callsInFlight })
		for range 3 {
			opened := n.tracker.ready.Load()
			d := f.checks(counters, 8, 1e6, oneKey)
			t.Logf("Redis decided %d of 8 over %d connections", d.shared.Load(), opened)
			failed += 8 - d.shared.Load()
			time.Sleep(100 * time.Millisecond) // until the pool has opened more
		}
		return failed, 0
	})
}

// TestSentinelsKeepConnectionsReady waits until as many connections are open as calls may be in flight, without a
// request: the pool of a master that Sentinels name opens none beside requests.
func TestSentinelsKeepConnectionsReady(t *testing.T) {
	f := startFar(t, 1, 16*time.Millisecond, func(o *Options) {
		_, port, _ := strings.Cut(o.Addresses[0], ":")
		sentinels := newFront(t, answering(fmt.Sprintf("*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s", len(port), port)))
		o.Addresses, o.Master, o.PoolSize = []string{sentinels.addr}, "main", 20
	})
	n := f.all[0].conn.nodes.first
	waitFor(t, "more calls to be in flight", func() bool { return n.distance.inFlight(10) > callsInFlight })
	waitFor(t, "a connection for each", func() bool { return int(n.tracker.ready.Load()) > n.distance.inFlight(10) })
}

// TestLateCallsAreSentOnce asks a Redis that receives calls after their deadline. By the reply, that of the request
// has passed, too, so that the call is not made again.
func TestLateCallsAreSentOnce(t *testing.T) {
	f := startFar(t, 1, 70*time.Millisecond)
	f.connected(t)
	const n = 50
	before := calls(t, f.srv.Client())
	f.checks(f.counter(t, "once", 1000), n, 50, oneKey)
	if sent := calls(t, f.srv.Client()) - before; sent > n*3/2 {
		t.Errorf("%d calls for %d checks", sent, n)
	}
}
