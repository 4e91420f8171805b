package inprocess

import (
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/testkit/benchtest"
)

// memoryKeys is the number of clients in the measurement of memory.
const memoryKeys = 200_000

// BenchmarkPeersMemory reports the memory per client, including everything that is
// kept for it.
func BenchmarkPeersMemory(b *testing.B) {
	for _, m := range everyone()[1:] {
		b.Run(m.name, func(b *testing.B) {
			benchtest.Memory(b, memoryKeys, func() caddyhttp.MiddlewareHandler { return m.make(b, limit, window) })
		})
	}
}
