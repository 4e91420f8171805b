// Package inprocess compares Diana with other limiters in one binary, with the same
// requests of the same clients. The other limiters only get the key from a header;
// Diana is the complete handler.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	_ "github.com/dianalimiter/diana" // registers the handler
	"github.com/dianalimiter/diana/internal/testkit/benchtest"
)

// limit is a client's limit in window, far above what a benchmark sends.
const (
	limit  = 1_000_000
	window = time.Second
)

var errDenied = errors.New("denied")

// maker creates a limiter that admits n requests in a window of d.
type maker struct {
	name string
	make func(tb testing.TB, n int, d time.Duration) caddyhttp.MiddlewareHandler
}

var peers = []maker{
	{"x-time-rate", newTimeRate},
	{"throttled", newThrottled},
	{"go-limiter", newGoLimiter},
}

// timeRate is the common use of golang.org/x/time/rate for many clients: limiters in a
// map with a mutex. It never removes a client.
type timeRate struct {
	mu      sync.Mutex
	clients map[string]*rate.Limiter
	limit   rate.Limit
	burst   int
}

func (t *timeRate) allow(key string) bool {
	t.mu.Lock()
	l := t.clients[key]
	if l == nil {
		l = rate.NewLimiter(t.limit, t.burst)
		t.clients[key] = l
	}
	t.mu.Unlock()
	return l.Allow()
}

func newTimeRate(_ testing.TB, n int, d time.Duration) caddyhttp.MiddlewareHandler {
	t := &timeRate{clients: make(map[string]*rate.Limiter), limit: rate.Every(d / time.Duration(n)), burst: n}
	return benchtest.HandlerFunc(func(_ *http.Request, key string) error {
		if !t.allow(key) {
			return errDenied
		}
		return nil
	})
}

func newThrottled(tb testing.TB, n int, d time.Duration) caddyhttp.MiddlewareHandler {
	store, err := memstore.NewCtx(2 * memoryKeys)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate: throttled.PerDuration(n, d), MaxBurst: n - 1,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return benchtest.HandlerFunc(func(r *http.Request, key string) error {
		limited, _, err := l.RateLimitCtx(r.Context(), key, 1)
		if limited {
			return errDenied
		}
		return err
	})
}

func newGoLimiter(tb testing.TB, n int, d time.Duration) caddyhttp.MiddlewareHandler {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(n), Interval: d})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = store.Close(context.Background()) })
	return benchtest.HandlerFunc(func(r *http.Request, key string) error {
		_, _, _, ok, err := store.Take(r.Context(), key)
		if !ok {
			return errDenied
		}
		return err
	})
}

// newBare measures the loop itself: its handler admits everything.
func newBare(testing.TB, int, time.Duration) caddyhttp.MiddlewareHandler {
	return benchtest.HandlerFunc(func(*http.Request, string) error { return nil })
}

// newDiana returns Diana's handler. Each has a new zone name, because zones of one name
// share their counts.
func newDiana(tb testing.TB, n int, d time.Duration) caddyhttp.MiddlewareHandler {
	zones++
	return benchtest.Handler(tb, "rate_limit", fmt.Sprintf(`{"headers":"off","zones":[{
		"name":"bench%d", "key":["{header.X-Key}"],
		"rules":[{"limit":%d, "window":%d, "algorithm":{"name":"gcra"}}]
	}]}`, zones, n, d), nil)
}

var zones int

func everyone() []maker {
	return append([]maker{{"bare", newBare}, {"diana", newDiana}}, peers...)
}

func BenchmarkPeersAllow(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	for _, m := range everyone() {
		b.Run(m.name, func(b *testing.B) { benchtest.Allow(b, m.make(b, limit, window), keys) })
	}
}

func BenchmarkPeersAllowParallel(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	for _, m := range everyone() {
		b.Run(m.name, func(b *testing.B) { benchtest.AllowParallel(b, m.make(b, limit, window), keys) })
	}
}

func BenchmarkPeersDeny(b *testing.B) {
	for _, m := range everyone()[1:] {
		b.Run(m.name, func(b *testing.B) { benchtest.Deny(b, m.make(b, 1, 10*time.Hour)) })
	}
}

// TestPeersLimit checks that every compared limiter limits, and admits the requests of
// the benchmarks.
func TestPeersLimit(t *testing.T) {
	for _, m := range everyone()[1:] {
		e := benchtest.NewExchange(t)
		many, once := m.make(t, limit, window), m.make(t, 1, 10*time.Hour)
		for i, key := range []string{"a", "b", "a", "b"} {
			if err := e.Do(many, key); err != nil {
				t.Errorf("%s: request %d of %d allowed: %v", m.name, i, limit, err)
			}
			if err := e.Do(once, key); (err == nil) != (i < 2) {
				t.Errorf("%s: request %d of %s, where each may send one: %v", m.name, i, key, err)
			}
		}
	}
}
