// Package inprocess measures Diana beside limiters that can be used in its
// place, in one binary, with the same requests of the same clients. The peers
// get the key from the header and do nothing else; Diana is the whole handler.
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
	"github.com/dianalimiter/diana/internal/benchtest"
)

// limit is what a client may do in window, far more than a benchmark asks for.
const (
	limit  = 1_000_000
	window = time.Second
)

var errDenied = errors.New("denied")

// maker makes a limiter that allows n requests in a window of d.
type maker struct {
	name string
	make func(tb testing.TB, n int, d time.Duration) caddyhttp.MiddlewareHandler
}

var peers = []maker{
	{"x-time-rate", newTimeRate},
	{"throttled", newThrottled},
	{"go-limiter", newGoLimiter},
}

// timeRate is how golang.org/x/time/rate is used for many clients: limiters in
// a map behind a mutex. It never forgets a client.
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

// newBare is the loop itself: a handler that lets everything pass.
func newBare(testing.TB, int, time.Duration) caddyhttp.MiddlewareHandler {
	return benchtest.HandlerFunc(func(*http.Request, string) error { return nil })
}

// newDiana is Diana's handler. Zones of one name would share their counts.
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

// TestPeersLimit sees that what is compared limits at all, and admits what the
// benchmarks ask for.
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
