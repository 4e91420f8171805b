package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
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
			if reserve(port) {
				return port
			}
		}
	}
	tb.Fatal("no free port")
	return 0
}

// reserve keeps a port from other test processes, which would find it free
// until the server listens. It holds until the process ends.
func reserve(port int) bool {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("diana-port-%d", port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = f.Close()
		return false
	}
	reserved.Store(port, f) // or the collector would close it
	return true
}

var reserved sync.Map
