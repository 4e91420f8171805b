package redis

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/dianalimiter/diana/stores"
)

// TestAdviceOnASocketOfOthers opens a socket that the user may not use.
func TestAdviceOnASocketOfOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	dialed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: to the file system it is another user
		const nobody = 65534
		_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0)
		_, err := net.Dial("unix", path)
		dialed <- err
	}()
	err = dialError{<-dialed}
	if !errors.Is(err, syscall.EACCES) || classify(err) != stores.FailAway || !strings.Contains(advice(stores.FailAway, err), "unixsocketperm") {
		t.Errorf("%v: %v, advice %q", err, classify(err), advice(stores.FailAway, err))
	}
}
