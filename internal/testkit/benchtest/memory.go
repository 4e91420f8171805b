package benchtest

import (
	"runtime"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/testkit/usage"
)

// Memory reports a handler's memory per client as B/key. New handlers must not share
// state with earlier ones.
func Memory(b *testing.B, clients int, newHandler func() caddyhttp.MiddlewareHandler) {
	b.Helper()
	keys := Keys(clients)
	e := NewExchange(b)
	var bytes uint64
	for range b.N {
		h := newHandler()
		before := usage.HeapAlloc()
		for _, k := range keys {
			// A new string, as in a request, which a handler may keep.
			if err := e.Do(h, strings.Clone(k)); err != nil {
				b.Fatalf("request of %s: %v", k, err)
			}
		}
		bytes += usage.HeapAlloc() - before
		runtime.KeepAlive(h)
	}
	runtime.KeepAlive(keys)
	b.ReportMetric(float64(bytes)/float64(clients*b.N), "B/key")
}
