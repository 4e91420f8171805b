package inprocess

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/redis/go-redis/v9"

	_ "github.com/dianalimiter/diana/benchmarks/redisrate" // registers the handler
	"github.com/dianalimiter/diana/internal/testkit/benchtest"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/usage"
)

// callers is the number of concurrent requests.
const callers = 32

// shared are the handlers that keep their counts in Redis.
var shared = []struct {
	name string
	make func(tb testing.TB, addr string) caddyhttp.MiddlewareHandler
}{
	{"diana-gcra", dianaOnRedis("gcra", "1s")},
	{"diana-sliding_window", dianaOnRedis("sliding_window", "1m")},
	{"redis_rate", func(tb testing.TB, addr string) caddyhttp.MiddlewareHandler {
		config := fmt.Sprintf(`{"address":%q,"key":"{http.request.header.X-Key}","rate":%d}`, addr, limit)
		return benchtest.Handler(tb, "redis_rate", config, nil)
	}},
}

func dianaOnRedis(algorithm, window string) func(testing.TB, string) caddyhttp.MiddlewareHandler {
	return func(tb testing.TB, addr string) caddyhttp.MiddlewareHandler {
		zone := fmt.Sprintf(`{"headers":"off","zones":[{"name":%q,"key":["{header.X-Key}"],
			"rules":[{"limit":%d,"window":%q,"algorithm":{"name":%q}}]}]}`, algorithm, limit, window, algorithm)
		// A loaded machine must not exceed the timeout.
		app := fmt.Sprintf(`{"stores":[{"addresses":[%q],"timeout":"5s"}]}`, addr)
		return benchtest.Handler(tb, "rate_limit", zone, map[string]string{"rate_limit": app})
	}
}

// BenchmarkPeersRedis measures with one goroutine, where each decision is a round
// trip, and with many.
func BenchmarkPeersRedis(b *testing.B) {
	srv := redistest.Start(b)
	client := srv.Client()
	for _, v := range shared {
		b.Run(v.name+"/alone", func(b *testing.B) { benchShared(b, v.make(b, srv.Addr), 1, client, srv.Pid()) })
		b.Run(fmt.Sprintf("%s/callers=%d", v.name, callers), func(b *testing.B) {
			benchShared(b, v.make(b, srv.Addr), callers, client, srv.Pid())
		})
	}
}

func benchShared(b *testing.B, h caddyhttp.MiddlewareHandler, callers int, client redis.UniversalClient, pid int) {
	keys := benchtest.Keys(benchtest.Clients)
	if err := benchtest.NewExchange(b).Do(h, keys[0]); err != nil { // loads the script
		b.Fatal(err)
	}
	m := usage.StartRedis(b, client, pid)
	cpu := usage.StartCPU()
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			e := benchtest.NewExchange(b)
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := e.Do(h, keys[i%int64(len(keys))]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	cpu.Report(b, b.N)
	m.Report(b, b.N)
}

// TestSharedAdmit checks that every handler calls Redis once per request.
func TestSharedAdmit(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client()
	for _, v := range shared {
		h, e := v.make(t, srv.Addr), benchtest.NewExchange(t)
		if err := e.Do(h, "first"); err != nil { // loads the script
			t.Fatalf("%s: %v", v.name, err)
		}
		before, err := usage.ReadRedis(t.Context(), client, srv.Pid())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if err := e.Do(h, fmt.Sprint("client", i)); err != nil {
				t.Errorf("%s: request %d: %v", v.name, i, err)
			}
		}
		now, err := usage.ReadRedis(t.Context(), client, srv.Pid())
		if err != nil {
			t.Fatal(err)
		}
		if n := now.Since(before).Calls; n < 10 {
			t.Errorf("%s: 10 requests, %d calls", v.name, n)
		}
	}
}
