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
	open  []*fronted
}

// fronted is a connection to a front.
type fronted struct {
	net.Conn
	replied sync.Once
	done    chan struct{} // closed with the first reply, or with the connection
}

// Write implements net.Conn.
func (c *fronted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.replied.Do(func() { close(c.done) })
	return n, err
}

// Close implements net.Conn.
func (c *fronted) Close() error {
	c.replied.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// newFront returns a front whose connections are served by serve.
func newFront(t *testing.T, serve func(net.Conn)) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{addr: l.Addr().String(), serve: serve}
	t.Cleanup(func() { _ = l.Close(); f.closeAll() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			k := &fronted{Conn: c, done: make(chan struct{})}
			f.open = append(f.open, k)
			go f.serve(k)
			f.mu.Unlock()
		}
	}()
	return f
}

// set closes all connections, and has serve serve the next ones. One that has had no reply yet is closed after
// it: otherwise the client would be told of a server that hangs up, and not of the next one.
func (f *front) set(serve func(net.Conn)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		<-c.done
	}
	f.closeOpen()
	f.serve = serve
}

// closeAll closes all connections.
func (f *front) closeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeOpen()
}

// closeOpen closes the connections that are open. f.mu is held.
func (f *front) closeOpen() {
	for _, c := range f.open {
		_ = c.Close()
	}
	f.open = nil
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
