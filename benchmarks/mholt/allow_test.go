// Package mholt measures github.com/mholt/caddy-ratelimit as the package
// inprocess measures Diana: with the same requests of the same clients. It is
// a binary of its own because the two claim the same name in Caddy.
package mholt

import (
	"fmt"
	"testing"

	_ "github.com/mholt/caddy-ratelimit" // registers the handler

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/dianalimiter/diana/internal/benchtest"
)

// The plugin keeps the time of every event, so that its limit is also its
// memory: a hundred events in a window that is too short to reach them.
const (
	many = `{"rate_limits":{"bench%d":{"key":"{http.request.header.X-Key}","max_events":100,"window":"5ms"}}}`
	once = `{"rate_limits":{"once%d":{"key":"{http.request.header.X-Key}","max_events":1,"window":"10h"}}}`
)

var zones int

// newHandler makes a handler with a zone of its own: the plugin's zones live
// as long as the process.
func newHandler(tb testing.TB, config string) caddyhttp.MiddlewareHandler {
	tb.Helper()
	zones++
	return benchtest.Handler(tb, "rate_limit", fmt.Sprintf(config, zones), nil)
}

func BenchmarkPeersAllow(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	b.Run("mholt", func(b *testing.B) { benchtest.Allow(b, newHandler(b, many), keys) })
}

func BenchmarkPeersAllowParallel(b *testing.B) {
	keys := benchtest.Keys(benchtest.Clients)
	b.Run("mholt", func(b *testing.B) { benchtest.AllowParallel(b, newHandler(b, many), keys) })
}

func BenchmarkPeersDeny(b *testing.B) {
	b.Run("mholt", func(b *testing.B) { benchtest.Deny(b, newHandler(b, once)) })
}

func BenchmarkPeersMemory(b *testing.B) {
	b.Run("mholt", func(b *testing.B) {
		benchtest.Memory(b, 50_000, func() caddyhttp.MiddlewareHandler { return newHandler(b, many) })
	})
}

// TestPeerLimits sees that the plugin limits at all, and admits what the
// benchmarks ask for.
func TestPeerLimits(t *testing.T) {
	e := benchtest.NewExchange(t)
	all, one := newHandler(t, many), newHandler(t, once)
	for i := range 3 {
		if err := e.Do(all, "a"); err != nil {
			t.Errorf("request %d of 100 allowed: %v", i, err)
		}
		if err := e.Do(one, "a"); (err == nil) != (i == 0) {
			t.Errorf("request %d of one allowed: %v", i, err)
		}
	}
}
