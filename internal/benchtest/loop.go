package benchtest

import (
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// warmUps is how many requests each client makes before the clock runs, so that
// every client is known and has the room that its counts need.
const warmUps = 3

// Allow puts requests of these clients to h in turn, from one goroutine. All of
// them must pass.
func Allow(b *testing.B, h caddyhttp.MiddlewareHandler, keys []string) {
	b.Helper()
	r := round{e: warm(b, h, keys), keys: keys}
	b.ReportAllocs()
	cpu := StartCPU()
	for b.Loop() {
		if err := r.next(h); err != nil {
			b.Fatal(err)
		}
	}
	cpu.Report(b, b.N)
}

// AllowParallel does the same from as many goroutines as there are processors,
// which begin at different clients.
func AllowParallel(b *testing.B, h caddyhttp.MiddlewareHandler, keys []string) {
	b.Helper()
	warm(b, h, keys)
	b.ReportAllocs()
	var goroutines atomic.Int64
	cpu := StartCPU()
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

// round goes through the clients again and again.
type round struct {
	e    *Exchange
	keys []string
	at   int
}

// next puts a request of the client whose turn it is.
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

// Deny puts requests of one client to h, of which the first uses up what its
// limit allows. All others must be refused.
func Deny(b *testing.B, h caddyhttp.MiddlewareHandler) {
	b.Helper()
	e := useUp(b, h)
	b.ReportAllocs()
	cpu := StartCPU()
	for b.Loop() {
		if err := e.Do(h, hot); err == nil {
			b.Fatal("a request passed: want all denied")
		}
	}
	cpu.Report(b, b.N)
}

// DenyParallel does the same from as many goroutines as there are processors.
func DenyParallel(b *testing.B, h caddyhttp.MiddlewareHandler) {
	b.Helper()
	useUp(b, h)
	b.ReportAllocs()
	cpu := StartCPU()
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

// useUp takes what the client's limit allows.
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

// collect lets the garbage collector finish with what preparing left behind, which
// would otherwise be counted as the handler's.
func collect() { runtime.GC() }

// HandlerFunc makes a handler of a function that decides by the client alone,
// as a limiter without a handler of its own would be used.
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
