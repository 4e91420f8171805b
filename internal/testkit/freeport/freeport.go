// Package freeport finds ports for the servers of tests and benchmarks.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// Ports are below the ephemeral range, from which an outgoing connection could take the
// port of a server that is about to restart, and far enough below it for the bus of a
// Cluster's node, 10,000 above its port.
const (
	firstPort = 12000
	lastPort  = 22000
)

var next atomic.Int64

func init() { next.Store(rand.Int64N(lastPort - firstPort)) } //nolint:gosec // any start will do

// Get returns a port of 127.0.0.1 that nobody uses, nor those at the given offsets from it, a
// different one for each call. They are held until this process ends: nobody else takes them
// before a server listens, or between two runs of that server.
func Get(offsets ...int) (int, error) {
next:
	for range lastPort - firstPort {
		port := int(firstPort + next.Add(1)%(lastPort-firstPort))
		for _, offset := range append(offsets, 0) {
			if !hold(port + offset) {
				continue next
			}
		}
		return port, nil
	}
	return 0, fmt.Errorf("no free port from %d to %d", firstPort, lastPort)
}
