package redis

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dianalimiter/diana/stores"
)

// TestAdviceOnDials looks up what the system says of a connection that cannot be opened.
func TestAdviceOnDials(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EACCES: "unixsocketperm", syscall.EPERM: "unixsocketperm", syscall.ENOENT: "no socket", syscall.ECONNREFUSED: "nothing listens",
		syscall.ENETUNREACH: "no way", syscall.EHOSTUNREACH: "no way", syscall.EHOSTDOWN: "no way", syscall.EMFILE: "limit", syscall.ENFILE: "limit",
		syscall.EADDRNOTAVAIL: "no free port", syscall.ECONNRESET: "cannot be reached", syscall.EPIPE: "cannot be reached", syscall.ENOTSOCK: "cannot be reached",
	} {
		err := dialError{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}}
		if got := advice(classify(err), err); classify(err) != stores.FailAway || mayHaveRun(err) || !strings.Contains(got, want) {
			t.Errorf("%v: %v, %q, want %q", err, classify(err), got, want)
		}
	}
	err := dialError{&net.DNSError{Err: "no such host", Name: "redis", IsNotFound: true}}
	if got := advice(classify(err), err); !strings.Contains(got, "DNS") {
		t.Errorf("%v: %q", err, got)
	}
	if err := (dialError{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}}); classify(err) != stores.FailTimeout {
		t.Errorf("%v is %v", err, classify(err))
	}
}

// TestAdviceOnSockets has a store meet a path without a socket, and a file that is none.
func TestAdviceOnSockets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(t.TempDir(), "none"): "no socket at this path", file: "nothing listens"} {
		events := new(downEvents)
		s := New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: ConnOptions{
			Addresses: []string{path}, Network: "unix", Prefix: "diana", Timeout: time.Second, DialTimeout: time.Second,
		}}, events)
		s.Start(1)
		t.Cleanup(func() { _ = s.Destruct() })
		waitFor(t, "it is told", func() bool { _, downs, _, _ := events.advice(); return downs > 0 })
		if got, _, _, cause := events.advice(); !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", cause, got, want)
		}
	}
}

// TestAdviceOnCommands looks up commands that a server does not have.
func TestAdviceOnCommands(t *testing.T) {
	for command, want := range map[string]string{"EVALSHA": lacksScript, "evalsha": lacksScript, "script": lacksScript, "SUBSCRIBE": "the error names", "publish": "the error names", "ping": "the error names"} {
		err := refusal("ERR unknown command '" + command + "', with args beginning with: 'x'")
		if got := stores.Advice(advise(classify(err), err)); classify(err) != stores.FailRejected || !strings.Contains(got, want) {
			t.Errorf("%v: %v, %q, want %q", err, classify(err), got, want)
		}
	}
}
