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

// Ports are allocated below the ephemeral range: an outgoing connection of a load
// test could otherwise take the port that a server is about to listen on.
const (
	firstPort = 20000
	lastPort  = 32000
)

var nextPort atomic.Int64

func init() { nextPort.Store(firstPort + int64(os.Getpid())*37%(lastPort-firstPort)) }

// FreePort returns a port on which nothing listens, a different one for each call.
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

// reserve reserves a port among test processes, for which it would be free until
// the server listens, by a file lock that lasts until the process ends. The tests of
// other modules use the same files.
func reserve(port int) bool {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("diana-port-%d", port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		f.Close()
		return false
	}
	reserved.Store(port, f) // keep the file from being garbage collected and closed
	return true
}

var reserved sync.Map

// Until polls ok until it returns true and fails the test if it does not in time.
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
