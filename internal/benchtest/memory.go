package benchtest

import (
	"runtime"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Memory reports what a handler keeps of each client, with everything that
// belongs to it, as B/key. A handler must keep nothing of those before it.
func Memory(b *testing.B, clients int, newHandler func() caddyhttp.MiddlewareHandler) {
	b.Helper()
	keys := Keys(clients)
	e := NewExchange(b)
	var bytes uint64
	for range b.N {
		h := newHandler()
		before := HeapAlloc()
		for _, k := range keys {
			// A request's own string, which a handler may keep.
			if err := e.Do(h, strings.Clone(k)); err != nil {
				b.Fatalf("request of %s: %v", k, err)
			}
		}
		bytes += HeapAlloc() - before
		runtime.KeepAlive(h)
	}
	runtime.KeepAlive(keys)
	b.ReportMetric(float64(bytes)/float64(clients*b.N), "B/key")
}

// HeapAlloc is what is in use after everything unused was given back.
func HeapAlloc() uint64 {
	runtime.GC()
	runtime.GC() // also what the first has yet to sweep
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
