// Package mholt measures github.com/mholt/caddy-ratelimit as package inprocess
// measures Diana, with the same requests of the same clients. It is a separate binary
// because both register the same Caddy module.
package mholt

import (
	"fmt"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/mholt/caddy-ratelimit" // registers the handler

	"github.com/dianalimiter/diana/internal/testkit/benchtest"
)

// The plugin keeps the time of every event, so the limit determines its memory. The
// limit is a hundred events in a window too short to reach it.
const (
	many = `{"rate_limits":{"bench%d":{"key":"{http.request.header.X-Key}","max_events":100,"window":"5ms"}}}`
	once = `{"rate_limits":{"once%d":{"key":"{http.request.header.X-Key}","max_events":1,"window":"10h"}}}`
)

var zones int

// newHandler returns a handler with a new zone: the plugin's zones live as long as the
// process.
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

// TestPeerLimits checks that the plugin limits, and admits the requests of the
// benchmarks.
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
