package benchtest

import (
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/testkit/usage"
)

// warmUps is the number of requests of each client before the timer starts, so that
// every client's state exists in its full size.
const warmUps = 3

// Allow sends requests of the clients to h in turn, from one goroutine. All must pass.
func Allow(b *testing.B, h caddyhttp.MiddlewareHandler, keys []string) {
	b.Helper()
	r := round{e: warm(b, h, keys), keys: keys}
	b.ReportAllocs()
	cpu := usage.StartCPU()
	for b.Loop() {
		if err := r.next(h); err != nil {
			b.Fatal(err)
		}
	}
	cpu.Report(b, b.N)
}

// AllowParallel is like Allow, from one goroutine per processor. The goroutines start
// at different clients.
func AllowParallel(b *testing.B, h caddyhttp.MiddlewareHandler, keys []string) {
	b.Helper()
	warm(b, h, keys)
	b.ReportAllocs()
	var goroutines atomic.Int64
	cpu := usage.StartCPU()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r := round{NewExchange(b), keys, int(goroutines.Add(1)) * 4099 % len(keys)}
		for pb.Next() {
			if err := r.next(h); err != nil {
				b.Error(err)
				return
			}
		}
	})
	cpu.Report(b, b.N)
}

// round iterates over the clients cyclically.
type round struct {
	e    *Exchange
	keys []string
	at   int
}

// next sends a request of the next client.
func (r *round) next(h caddyhttp.MiddlewareHandler) error {
	key := r.keys[r.at]
	if r.at++; r.at == len(r.keys) {
		r.at = 0
	}
	if err := r.e.Do(h, key); err != nil {
		return fmt.Errorf("request of %s: %w", key, err)
	}
	return nil
}

// Deny sends requests of one client to h, of which the first uses up its limit. All
// others must be denied.
func Deny(b *testing.B, h caddyhttp.MiddlewareHandler) {
	b.Helper()
	e := useUp(b, h)
	b.ReportAllocs()
	cpu := usage.StartCPU()
	for b.Loop() {
		if err := e.Do(h, hot); err == nil {
			b.Fatal("a request passed: want all denied")
		}
	}
	cpu.Report(b, b.N)
}

// DenyParallel is like Deny, from one goroutine per processor.
func DenyParallel(b *testing.B, h caddyhttp.MiddlewareHandler) {
	b.Helper()
	useUp(b, h)
	b.ReportAllocs()
	cpu := usage.StartCPU()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		e := NewExchange(b)
		for pb.Next() {
			if err := e.Do(h, hot); err == nil {
				b.Error("a request passed: want all denied")
				return
			}
		}
	})
	cpu.Report(b, b.N)
}

// hot is the client that is denied.
const hot = "hot"

// useUp uses up the client's limit.
func useUp(b *testing.B, h caddyhttp.MiddlewareHandler) *Exchange {
	b.Helper()
	e := NewExchange(b)
	for range warmUps {
		_ = e.Do(h, hot)
	}
	collect()
	return e
}

func warm(b *testing.B, h caddyhttp.MiddlewareHandler, keys []string) *Exchange {
	b.Helper()
	e := NewExchange(b)
	for range warmUps {
		for _, k := range keys {
			if err := e.Do(h, k); err != nil {
				b.Fatalf("request of %s: %v", k, err)
			}
		}
	}
	collect()
	return e
}

// collect collects the garbage of the preparation, which would otherwise be
// attributed to the handler.
func collect() { runtime.GC() }

// HandlerFunc returns a handler that calls admit, for limiters that have no Caddy
// handler.
func HandlerFunc(admit func(r *http.Request, key string) error) caddyhttp.MiddlewareHandler {
	return decider(admit)
}

type decider func(r *http.Request, key string) error

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (d decider) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if err := d(r, r.Header.Get(KeyHeader)); err != nil {
		return caddyhttp.Error(http.StatusTooManyRequests, err)
	}
	return next.ServeHTTP(w, r)
}
