package redis

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// front is an address at which one server after another answers.
type front struct {
	addr string

	mu    sync.Mutex
	serve func(net.Conn)
	open  []net.Conn
}

// newFront returns a front whose connections are served by serve.
func newFront(t *testing.T, serve func(net.Conn)) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{addr: l.Addr().String(), serve: serve}
	t.Cleanup(func() { _ = l.Close(); f.set(nil) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.open = append(f.open, c)
			go f.serve(c)
			f.mu.Unlock()
		}
	}()
	return f
}

// set closes all connections, and has serve serve the next ones.
func (f *front) set(serve func(net.Conn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.Close()
	}
	f.serve, f.open = serve, nil
}

// relayTo connects to a server.
func relayTo(addr string) func(net.Conn) {
	return func(c net.Conn) {
		defer func() { _ = c.Close() }()
		to, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(to, c); _ = to.Close() }()
		_, _ = io.Copy(c, to)
	}
}

// answering answers each command with the same reply.
func answering(reply string) func(net.Conn) {
	return func(c net.Conn) {
		defer func() { _ = c.Close() }()
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			n, isArray := strings.CutPrefix(strings.TrimSpace(line), "*")
			args, _ := strconv.Atoi(n)
			for range args {
				var size int
				if line, err = r.ReadString('\n'); err == nil {
					size, err = strconv.Atoi(strings.TrimSpace(line[1:]))
				}
				if err != nil {
					return
				}
				_, err = r.Discard(size + 2)
			}
			if err != nil {
				return
			}
			if isArray {
				_, _ = io.WriteString(c, reply+"\r\n")
			}
		}
	}
}

// saying says something and closes the connection.
func saying(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.WriteString(c, text)
		_ = c.Close()
	}
}
