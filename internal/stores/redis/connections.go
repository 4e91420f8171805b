package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// connTracker tracks the connections to one node.
type connTracker struct {
	grace time.Duration // how long a call may take

	mu    sync.Mutex
	open  map[*trackedConn]bool // those that the pool may use, and whether they are greeted
	leads string                // the address of the master to which the last was opened; empty: no Sentinels name it
	since time.Time             // when a connection to that master replaced those to another; zero: there was no other yet

	opened  atomic.Uint64 // in total
	changes atomic.Uint64 // how often some were closed or retired
	ready   atomic.Int64  // that are open and greeted
}

func newConnTracker(grace time.Duration) *connTracker {
	return &connTracker{grace: grace, open: make(map[*trackedConn]bool)}
}

// retire stops the pool from using the connections that are open now: after a
// failure they may lead to a server that is gone, or that is no longer the
// master, and the pool would offer them to one request after another. Calls in
// flight are not interrupted. A call that was sent before the master changed says nothing of the
// connections to the new one.
func (l *connTracker) retire(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !sent.Before(l.since) {
		l.retireAll()
	}
}

// add adds a connection. The first to another master than before, which Sentinels have named since, takes
// the place of those that are open, and one to a master that was named earlier is not used.
func (l *connTracker) add(c *trackedConn, to named) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.addr != l.leads {
		if to.at.Before(l.since) {
			return false
		}
		if l.leads != "" {
			l.since = time.Now()
		}
		l.leads = to.addr
		l.retireAll()
	}
	l.open[c] = false
	return true
}

// retireAll retires the connections that are open. l.mu is held.
func (l *connTracker) retireAll() {
	retired := l.open
	l.open = make(map[*trackedConn]bool)
	l.ready.Store(0)
	l.changes.Add(1)
	if len(retired) == 0 {
		return
	}
	for c := range retired {
		c.retired.Store(true)
	}
	time.AfterFunc(l.grace, func() {
		for c := range retired {
			_ = c.Close()
		}
	})
}

// any says whether connections are open.
func (l *connTracker) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open) > 0
}

func (l *connTracker) remove(c *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes.Add(1)
	if l.open[c] {
		l.ready.Add(-1)
	}
	delete(l.open, c)
}

// greets notes that a connection is greeted.
func (l *connTracker) greets(c *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[c]; open {
		l.open[c] = true
		l.ready.Add(1)
	}
}

// newDialer limits the connections to one server to n, greets the server, and tracks them. The pool's
// own limit is exceeded while it dials. With moves, the server is another when Sentinels name another master.
//
// The dialer never fails, but returns a connection that does. After PoolSize
// dial errors, go-redis' pool tries to dial only once a second, and OnConnect
// and Limiter have no influence on that. How often an unavailable Redis is
// dialed is decided by the breaker.
func newDialer(tracker func() *connTracker, dial dialer, greet func(context.Context, connection) error, n int, moves bool) dialer {
	slots := make(chan struct{}, n)
	return func(ctx context.Context, network, addr string) (connection, error) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return failedConn{dialError{ctx.Err()}}, nil
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			<-slots
			return failedConn{dialError{err}}, nil //nolint:nilerr // see above
		}
		to, is := c.(named)
		if is {
			c = to.Conn
		}
		if !moves {
			to = named{}
		}
		l := tracker()
		l.opened.Add(1)
		k := &trackedConn{Conn: c}
		k.closed = sync.OnceFunc(func() {
			l.remove(k)
			<-slots
		})
		err = errReplaced
		if l.add(k, to) {
			err = greet(ctx, k)
		}
		if err != nil {
			_ = k.Close()
			return failedConn{dialError{err}}, nil //nolint:nilerr // see above
		}
		k.stage = greeted
		l.greets(k)
		return k, nil
	}
}

// masterHook opens the connections to the master that Sentinels name as newDialer does. Those to the
// Sentinels, of which only some may be configured, are opened by the same dialer, but without hooks.
type masterHook struct {
	tracker func() *connTracker
	most    int
	tls     *tls.Config // of the master alone; nil: the dialer has it, if there is any
	timeout time.Duration
	greet   func(context.Context, connection) error
}

// DialHook implements [goredis.Hook]. A master that no Sentinel names is one that cannot be dialed.
func (h masterHook) DialHook(next goredis.DialHook) goredis.DialHook {
	if h.tls != nil {
		next = securing(next, h.tls, h.timeout)
	}
	return newDialer(h.tracker, next, h.greet, h.most, true)
}

// ProcessHook implements [goredis.Hook].
func (masterHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements [goredis.Hook].
func (masterHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// The stages of the greeting by the pool's client over a connection that is greeted. HELLO describes
// the server in a map, which is empty here.
const (
	passed    = iota // what is read and written passes
	greeted          // what is written next is the greeting
	helloSent        // what is read next is the answer

	emptyMap = "*0\r\n"
)

// trackedConn is a connection that frees its slot when it is closed.
type trackedConn struct {
	net.Conn
	closed  func()
	retired atomic.Bool
	reads   time.Time // the deadline of reads
	heard   bool      // whether the server has sent anything but said
	said    string    // an error, as the first reply
	stage   int8      // of the greeting by the pool's client
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// SetReadDeadline implements net.Conn.
func (c *trackedConn) SetReadDeadline(t time.Time) error {
	c.reads = t
	return c.Conn.SetReadDeadline(t)
}

// lateRead is how late a read has to time out to be repeated, and for how long it is then.
const lateRead = time.Millisecond

// read reads. A deadline that is noticed late passed while this process stood still, and the
// reply may have come meanwhile: a read that begins after its deadline would not look.
func (c *trackedConn) read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(c.reads) < lateRead {
		return n, err
	}
	if err := c.Conn.SetReadDeadline(time.Now().Add(lateRead)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// tlsAlert begins what a server that expects TLS may answer without it, which is saysTLS in words.
const tlsAlert = 21

// Read implements net.Conn.
func (c *trackedConn) Read(b []byte) (int, error) {
	if c.stage == helloSent {
		c.stage = passed
		return copy(b, emptyMap), nil
	}
	n, err := c.read(b)
	if n > 0 && !c.heard {
		if text, is := bytes.CutPrefix(b[:n], []byte("-")); is && c.said == "" {
			text, _, _ = bytes.Cut(text, []byte("\r\n"))
			c.said = string(text)
		} else if b[0] == tlsAlert {
			c.said = saysTLS
		} else {
			c.heard = true
		}
	}
	return n, c.explain(err)
}

// Write implements net.Conn.
func (c *trackedConn) Write(b []byte) (int, error) {
	if c.stage == greeted {
		c.stage = helloSent
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

// explain distinguishes a server that closes a new connection from one that
// disappears. A Redis at its maxclients does the former, and sends the reason.
// The client takes that reason for the reply to its greeting, and may lose it.
func (c *trackedConn) explain(err error) error {
	if err == nil || c.heard || c.retired.Load() || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		return err
	}
	return earlyClose{err, c.said}
}

var (
	errRetired  = errors.New("the connection was opened before a failure")
	errReplaced = errors.New("the Sentinels have named another master meanwhile")
)

// SyscallConn lets the pool check, before it uses a connection, whether it is
// retired and whether the server has closed it. With TLS it looks at the connection below, where
// the server's records after the handshake look like replies until the first reply is read.
func (c *trackedConn) SyscallConn() (syscall.RawConn, error) {
	if c.retired.Load() {
		return nil, errRetired
	}
	conn := c.Conn
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok && c.heard {
		conn = over.NetConn()
	}
	return rawOf(conn)
}

// failedConn stands for a connection that could not be opened. Its methods
// return the error. The pool takes it for a connection that the server has
// closed.
type failedConn struct{ err dialError }

func (b failedConn) Read([]byte) (int, error)              { return 0, b.err }
func (b failedConn) Write([]byte) (int, error)             { return 0, b.err }
func (b failedConn) SyscallConn() (syscall.RawConn, error) { return nil, b.err }
func (failedConn) Close() error                            { return nil }
func (failedConn) LocalAddr() net.Addr                     { return &net.TCPAddr{} }
func (failedConn) RemoteAddr() net.Addr                    { return &net.TCPAddr{} }
func (failedConn) SetDeadline(time.Time) error             { return nil }
func (failedConn) SetReadDeadline(time.Time) error         { return nil }
func (failedConn) SetWriteDeadline(time.Time) error        { return nil }
