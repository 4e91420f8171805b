//go:build !linux

package freeport

import (
	"net"
	"strconv"
)

// hold checks that nothing listens on a port. Where a bound socket keeps a server from
// listening beside it, a port cannot be held.
func hold(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
