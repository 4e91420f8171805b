package redistest

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// Ports are below the ephemeral range, from which an outgoing connection could take the
// port of a server that is about to restart, and far enough below it for the bus of a
// Cluster's node, 10,000 above its port.
const (
	firstPort = 12000
	lastPort  = 22000
	busOffset = 10_000
)

var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(lastPort - firstPort)) } //nolint:gosec // any start will do

// FreePort returns a port of 127.0.0.1 that nobody uses, a different one for each call.
// It is held until this process ends: no other test takes it before a server listens on
// it, or between two runs of that server.
func FreePort(tb testing.TB) int {
	tb.Helper()
	return freePort(tb, 0)
}

// freePort returns a port that is free together with those at the given offsets.
func freePort(tb testing.TB, offsets ...int) int {
	tb.Helper()
next:
	for range lastPort - firstPort {
		port := int(firstPort + nextPort.Add(1)%(lastPort-firstPort))
		for _, offset := range offsets {
			if !hold(port + offset) {
				continue next
			}
		}
		return port
	}
	tb.Fatalf("no free port from %d to %d", firstPort, lastPort)
	return 0
}
