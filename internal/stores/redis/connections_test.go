package redis

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestLateReadsLook begins reads after their deadline has passed, as a process does that stood
// still. A reply that is there is read, and a read without one times out.
func TestLateReadsLook(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = near.Close() }()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()

	c := &trackedConn{Conn: near, heard: true}
	read := func(late time.Duration) (string, error) {
		if err := c.SetReadDeadline(time.Now().Add(-late)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, err := c.Read(b)
		return string(b[:n]), err
	}
	if got, err := read(time.Second); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("without a reply: %q, %v", got, err)
	}
	if _, err := io.WriteString(far, "+OK\r\n"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the reply", func() bool {
		got, err := read(time.Second)
		return got == "+OK\r\n" && err == nil
	})
}
