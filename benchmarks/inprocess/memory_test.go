package inprocess

import (
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/benchtest"
)

// memoryKeys is how many clients the memory is measured with.
const memoryKeys = 200_000

// BenchmarkPeersMemory reports what each client takes, by everything that is
// kept of it.
func BenchmarkPeersMemory(b *testing.B) {
	for _, m := range everyone()[1:] {
		b.Run(m.name, func(b *testing.B) {
			benchtest.Memory(b, memoryKeys, func() caddyhttp.MiddlewareHandler { return m.make(b, limit, window) })
		})
	}
}
