//go:build measure

package redis

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestPermitTimes measures how long calls take Redis while 10,000 permits are held: of
// one key, and of as many keys. Each phase is logged. Redis' times include those in which
// its thread waited for a processor, which the kernel counts: what calls took beyond a
// millisecond in excess of that wait was Redis. Less than that proves nothing on a busy
// machine; compare several runs. The build tag measure runs it, and -count=1
// keeps go test from repeating an old result.
func TestPermitTimes(t *testing.T) {
	const n = 10_000
	for name, keyOf := range map[string]func(i int) uint64{
		"one key": func(int) uint64 { return 1 }, "keys": func(i int) uint64 { return uint64(i) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
			var now atomic.Int64
			now.Store(storekit.Hour)
			s := newTestShared(t, srv, now.Load)
			m := &timing{T: t, client: srv.Client(), pid: srv.Pid()}
			m.log("started")
			c := kit.NewTestCounter(t, "times", 2*n, true, nil, storekit.RuleSpec{Alg: &algorithms.SlidingWindow{Buckets: 10}, Spec: algorithms.Spec{Limit: 10 * n, Window: storekit.Hour, Cost: 1, Overdraws: true}})
			var zones [n]*stores.ZoneCheck
			decide := func(i int) {
				check := storekit.CheckOfKey(c, keyOf(i))
				if s.Decide(context.Background(), check); !check.Admitted || check.Mode != stores.ModeShared {
					t.Errorf("check %d: %v", i, check.Mode)
				}
				zones[i] = &check.Zones[0]
			}
			single := func(i int) {
				check := storekit.CheckOfKey(c, keyOf(i))
				s.Decide(context.Background(), check)
				s.Finish(context.Background(), &check.Zones[0], 0)
			}
			for i := range 1000 {
				single(i)
			}
			m.log("decided and given back one by one, none held")
			parallelly(n, decide)
			m.log("taken by 16 at a time")
			for i := range 1000 {
				single(i)
			}
			m.log("decided and given back one by one, 10,000 held")
			now.Add(renewEvery.Microseconds())
			began := time.Now()
			s.renewPermits()
			m.log("renewed in " + time.Since(began).String())
			parallelly(n, func(i int) { s.Finish(context.Background(), zones[i], 1) })
			m.log("given back and charged by 16 at a time")
			if s.holdsPermits() {
				t.Error("records remain")
			}
		})
	}
}

func parallelly(n int, do func(i int)) {
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := g; i < n; i += 16 {
				do(i)
			}
		})
	}
	all.Wait()
}

// timing reads how long Redis took for calls.
type timing struct {
	*testing.T
	client    *goredis.Client
	pid       int
	cpu, wait time.Duration // of the server's main thread so far
}

// sched returns how long the server's main thread has run, and has waited to run.
func (m *timing) sched() (cpu, wait time.Duration) {
	m.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", m.pid, m.pid))
	if err != nil {
		m.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &cpu, &wait); err != nil {
		m.Fatal(err)
	}
	return cpu, wait
}

func (m *timing) log(what string) {
	m.Helper()
	cpu, wait := m.sched()
	var took []time.Duration
	for _, l := range m.client.SlowLogGet(context.Background(), 1_000_000).Val() {
		if l.Args[0] == "evalsha" {
			took = append(took, l.Duration)
		}
	}
	m.client.Do(context.Background(), "slowlog", "reset")
	ran, waited := cpu-m.cpu, wait-m.wait
	m.cpu, m.wait = m.sched()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	within := sort.Search(len(took), func(i int) bool { return took[i] > time.Millisecond })
	var excess time.Duration
	for _, d := range took[within:] {
		excess += d - time.Millisecond
	}
	m.Logf("%-47s %4d calls, median %v, 99%% %v, slowest %v, %d over 1ms by %v; the thread ran %v and waited %v", what, len(took),
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1], len(took)-within, excess,
		ran.Round(time.Millisecond), waited.Round(time.Millisecond))
}

// TestLongOutage stops Redis for longer than permits last while three instances hold all
// of a key, and logs who holds how many. The build tag measure runs it.
func TestLongOutage(t *testing.T) {
	const capacity = 60
	srv, began := redistest.Start(t), time.Now()
	c := inFlightCounter(t, "long", capacity)
	var all [3]*Store
	for i := range all {
		all[i] = New(Options{Name: "redis", Clock: func() int64 { return time.Since(began).Microseconds() + storekit.Hour }, ConnOptions: ConnOptions{
			Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: 200 * time.Millisecond, DialTimeout: time.Second,
		}}, silent{})
		all[i].Start(len(all))
		t.Cleanup(func() { _ = all[i].Destruct() })
	}
	var held [3][]*stores.ZoneCheck
	try := func(what string, n int) {
		for range n {
			for i, s := range all {
				check := storekit.CheckOf(1, c)
				if s.Decide(context.Background(), check); check.Admitted {
					held[i] = append(held[i], &check.Zones[0])
				}
			}
		}
		inRedis := "does not answer"
		if all[0].conn.usable(stores.Key{}) {
			name := namesOf("diana", &storekit.CheckOf(1, c).Zones[0])[1]
			inRedis = fmt.Sprint(permitsIn(t, srv.Client(), name))
		}
		t.Logf("%5.1fs %-36s held by instance %d, %d, %d, together %d of %d; Redis: %s", time.Since(began).Seconds(), what,
			len(held[0]), len(held[1]), len(held[2]), len(held[0])+len(held[1])+len(held[2]), capacity, inRedis)
	}
	up := func(want bool) {
		for _, s := range all {
			for now, _, _ := s.State(); now != want; now, _, _ = s.State() {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	up(true)
	time.Sleep(2 * time.Second)
	try("before", 30)
	for range 2 {
		srv.Stall()
		up(false)
		try("Redis has stopped", 30)
		time.Sleep(33 * time.Second)
		try("after 33 s", 30)
		srv.Resume()
		up(true)
		try("Redis is back", 30)
		time.Sleep(2 * time.Second)
		try("two seconds later", 30)
	}
	for i, s := range all {
		for _, z := range held[i] {
			s.Finish(context.Background(), z, 0)
		}
		held[i] = nil
	}
	try("all have ended", 0)
}
