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

// Ports are allocated below the ephemeral range: under load, an outgoing connection
// could otherwise take the port of a server that is about to restart.
const (
	firstPort = 12000
	lastPort  = 20000
)

var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid()) * 37 % (lastPort - firstPort)) }

// FreePort returns a port on which nothing listens, a different one for each call.
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

// reserve reserves a port among test processes, for which it would be free until the
// server listens, by a file lock that lasts until the process ends.
func reserve(port int) bool {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("diana-port-%d", port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		_ = f.Close()
		return false
	}
	reserved.Store(port, f) // keep the file from being garbage collected and closed
	return true
}

var reserved sync.Map
