package benchtest

import (
	"net/http"
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
	e := warm(b, h, keys)
	b.ReportAllocs()
	cpu := StartCPU()
	i := 0
	for b.Loop() {
		if err := e.Do(h, keys[i]); err != nil {
			b.Fatalf("request of %s: %v", keys[i], err)
		}
		if i++; i == len(keys) {
			i = 0
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
		e := NewExchange(b)
		i := int(goroutines.Add(1)) * 4099 % len(keys)
		for pb.Next() {
			if err := e.Do(h, keys[i]); err != nil {
				b.Errorf("request of %s: %v", keys[i], err)
				return
			}
			if i++; i == len(keys) {
				i = 0
			}
		}
	})
	cpu.Report(b, b.N)
}

// Deny puts requests of one client to h, of which the first uses up what its
// limit allows. All others must be refused.
func Deny(b *testing.B, h caddyhttp.MiddlewareHandler) {
	b.Helper()
	e := NewExchange(b)
	for range warmUps {
		_ = e.Do(h, "hot")
	}
	b.ReportAllocs()
	cpu := StartCPU()
	for b.Loop() {
		if err := e.Do(h, "hot"); err == nil {
			b.Fatal("a request passed: want all denied")
		}
	}
	cpu.Report(b, b.N)
}

// DenyParallel does the same from as many goroutines as there are processors.
func DenyParallel(b *testing.B, h caddyhttp.MiddlewareHandler) {
	b.Helper()
	e := NewExchange(b)
	for range warmUps {
		_ = e.Do(h, "hot")
	}
	b.ReportAllocs()
	cpu := StartCPU()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		e := NewExchange(b)
		for pb.Next() {
			if err := e.Do(h, "hot"); err == nil {
				b.Error("a request passed: want all denied")
				return
			}
		}
	})
	cpu.Report(b, b.N)
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
	return e
}

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
