package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/internal/testkit/usage"
	"github.com/dianalimiter/diana/stores"
)

var (
	threeBenchRules = []storekit.BenchRule{storekit.BenchGCRA, storekit.BenchSlidingWindow, storekit.BenchFixedWindow}
	eightBenchRules = append(threeBenchRules,
		storekit.BenchRule{Alg: new(algorithms.TokenBucket), Limit: 1_000_000, Window: time.Second},
		storekit.BenchRule{Alg: &algorithms.LeakyBucket{NoDelay: true}, Limit: 1_000_000, Window: time.Second},
		storekit.BenchRule{Alg: &algorithms.FixedWindow{Align: true}, Limit: 1_000_000, Window: time.Hour},
		storekit.BenchRule{Alg: &algorithms.SlidingWindow{Buckets: 6}, Limit: 1_000_000, Window: time.Hour},
		storekit.BenchRule{Alg: new(algorithms.SlidingLog), Limit: 100_000, Window: time.Minute},
	)
)

// benchClients is the number of clients of a benchmark.
const benchClients = 10_000

// benchRedis is a store on a Redis of its own.
type benchRedis struct {
	*Store
	server  *redistest.Server
	client  *goredis.Client
	counter *stores.Counter
	clients uint64
}

func newBenchRedis(tb testing.TB, name string, clients uint64, rules ...storekit.BenchRule) *benchRedis {
	tb.Helper()
	srv := redistest.Start(tb)
	start := time.Now()
	s := New(Options{
		Name: "redis", Clock: func() int64 { return time.Since(start).Microseconds() },
		ConnOptions: ConnOptions{
			// Long enough for a busy machine, and a server under callgrind.
			Addresses: []string{srv.Addr}, Prefix: "diana", Timeout: time.Minute, DialTimeout: time.Minute,
		},
	}, strictObserver{tb})
	s.Start(0)
	tb.Cleanup(func() { _ = s.Destruct() })
	r := &benchRedis{s, srv, srv.Client(), kit.NewBenchCounter(tb, name, 1000, rules...), clients}
	for i := range clients { // loads the script, and creates the keys
		r.decide(tb, r.newCheck(), i)
	}
	return r
}

func (r *benchRedis) newCheck() *stores.Check {
	return &stores.Check{Zones: []stores.ZoneCheck{{Counter: r.counter, Cost: 1}}}
}

// decide decides a check as a request does.
func (r *benchRedis) decide(tb testing.TB, check *stores.Check, i uint64) {
	k := storekit.BenchKey(i % r.clients)
	check.Zones[0].Key, check.Zones[0].Tag = k, k
	r.Decide(context.Background(), check)
	if check.Mode != stores.ModeShared || !check.Admitted {
		tb.Errorf("mode %d, admitted %v: want all admitted by Redis", check.Mode, check.Admitted)
	}
}

// encoded returns a check's keys and its operation.
func (r *benchRedis) encoded(i uint64) (keys []string, op []byte) {
	k := storekit.BenchKey(i % r.clients)
	return encodeCheck(r.conn.o.Prefix, &stores.Check{Zones: []stores.ZoneCheck{{Counter: r.counter, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}})
}

// BenchmarkRedis measures what a decision costs Redis: one per call, 32 in one call
// of the script, and 32 calls in one pipeline. A script that does nothing shows the
// speed of the machine.
func BenchmarkRedis(b *testing.B) {
	for _, v := range []struct {
		name  string
		rules []storekit.BenchRule
	}{
		{"gcra", []storekit.BenchRule{storekit.BenchGCRA}},
		{"sliding_window", []storekit.BenchRule{storekit.BenchSlidingWindow}},
		{"three_rules", threeBenchRules},
		{"eight_rules", eightBenchRules},
	} {
		r := newBenchRedis(b, v.name, benchClients, v.rules...)
		if v.name == "gcra" {
			r.run(b, "noop/alone", func(b *testing.B) { r.benchScript(b, "return 1") })
		}
		r.run(b, v.name+"/alone", r.benchAlone)
		r.run(b, v.name+"/together=32", r.benchTogether)
		r.run(b, v.name+"/pipelined=32", r.benchPipelined)
	}
}

// run runs a benchmark and reports its cost to Redis.
func (r *benchRedis) run(b *testing.B, name string, bench func(*testing.B)) {
	b.Run(name, func(b *testing.B) {
		m := usage.StartRedis(b, r.client, r.server.Pid())
		cpu := usage.StartCPU()
		b.ResetTimer()
		bench(b)
		cpu.Report(b, b.N)
		m.Report(b, b.N)
	})
}

// BenchmarkRedisCallers measures many concurrent callers of one Redis.
func BenchmarkRedisCallers(b *testing.B) {
	r := newBenchRedis(b, "callers", benchClients, storekit.BenchGCRA)
	for _, callers := range []int{16, 32, 512} {
		r.run(b, fmt.Sprintf("gcra/callers=%d", callers), func(b *testing.B) { r.benchCallers(b, callers) })
	}
}

func (r *benchRedis) benchAlone(b *testing.B) {
	check := r.newCheck()
	for i := range b.N {
		r.decide(b, check, storekit.Scramble(uint64(i)))
	}
}

const batch = 32

func (r *benchRedis) benchTogether(b *testing.B) {
	for i := 0; i < b.N; i += batch {
		r.together(b, i)
	}
}

// together decides a batch of checks in one call, from the i-th on.
func (r *benchRedis) together(tb testing.TB, i int) {
	tb.Helper()
	var keys []string
	var ops [][]byte
	for j := range batch {
		k, op := r.encoded(storekit.Scramble(uint64(i + j)))
		keys, ops = append(keys, k...), append(ops, op)
	}
	if _, err := r.conn.callOnce(context.Background(), keys, ops...); err != nil {
		tb.Fatal(err)
	}
}

func (r *benchRedis) benchPipelined(b *testing.B) {
	for i := 0; i < b.N; i += batch {
		pipe := r.client.Pipeline()
		for j := range batch {
			keys, op := r.encoded(storekit.Scramble(uint64(i + j)))
			pipe.Do(context.Background(), "evalsha", r.conn.script.sha, len(keys), keys[0], appendNumber(appendNumber(nil, int64(i+j)), noEnd), op)
		}
		if _, err := pipe.Exec(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func (r *benchRedis) benchCallers(b *testing.B, callers int) {
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			check := r.newCheck()
			for i := next.Add(1); i <= uint64(b.N); i = next.Add(1) {
				r.decide(b, check, storekit.Scramble(i))
			}
		})
	}
	wg.Wait()
}
