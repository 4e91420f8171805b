package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Ports are handed out below the range from which systems take the ports of
// outgoing connections; a load test would otherwise take one that a server is
// about to listen on.
const (
	firstPort = 20000
	lastPort  = 32000
)

var nextPort atomic.Int64

func init() { nextPort.Store(firstPort + int64(os.Getpid())*37%(lastPort-firstPort)) }

// FreePort returns a port on which nothing listens, a different one each time.
func FreePort(t testing.TB) int {
	t.Helper()
	for range lastPort - firstPort {
		port := int(firstPort + nextPort.Add(1)%(lastPort-firstPort))
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			if reserve(port) {
				return port
			}
		}
	}
	t.Fatal("no free port")
	return 0
}

// reserve keeps a port from other test processes, which would find it free
// until the server listens. It holds until the process ends. The tests of other
// modules use the same files.
func reserve(port int) bool {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("diana-port-%d", port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		f.Close()
		return false
	}
	reserved.Store(port, f) // or the collector would close it
	return true
}

var reserved sync.Map

// Until asks again and again whether something has come true, and fails the
// test if it has not by the end of the time given.
func Until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
