package redistest

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports are handed out below the range from which systems take those of
// outgoing connections: under load one of these would otherwise take the port
// of a server that is about to start again.
const (
	firstPort = 12000
	lastPort  = 20000
)

var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid()) * 37 % (lastPort - firstPort)) }

// FreePort returns a port on which nothing listens, a different one each time.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for range lastPort - firstPort {
		port := int(firstPort + nextPort.Add(1)%(lastPort-firstPort))
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatal("no free port")
	return 0
}
