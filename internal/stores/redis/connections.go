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
	open  map[*trackedConn]bool // the connections that the pool may use; true: greeted
	leads string                // the master's address of the last connection; empty: no Sentinels name it
	since time.Time             // when the master last changed; zero: never

	remote string    // the remote address of the last connection
	moved  time.Time // when the first connection to remote was opened; zero: there was no other address
	renews time.Time // when connections may be replaced again

	opened  atomic.Uint64 // connections opened in total
	changes atomic.Uint64 // how often connections were closed or retired
	ready   atomic.Int64  // connections that are open and greeted
}

func newConnTracker(grace time.Duration) *connTracker {
	return &connTracker{grace: grace, open: make(map[*trackedConn]bool)}
}

// retire stops the pool from using the connections that are open now. After a failed call they may lead to a server that
// is gone or no longer the master, and the pool would offer them to one request after another. Calls in flight are not
// interrupted. sent is when the failed call was sent: before the master changed, it says nothing about the connections
// to the new master.
func (l *connTracker) retire(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !sent.Before(l.since) {
		l.retireAll()
	}
}

// add adds a connection. The first connection to a new master retires those to the former one. add returns false for a
// connection to a master that Sentinels named before the last change: it must not be used.
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
	l.leadsTo(c)
	l.open[c] = false
	return true
}

// isLed says whether a connection leads to the master that is in use.
func (l *connTracker) isLed(to named) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return to.addr == l.leads
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

// any says whether any connection is open.
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
func (l *connTracker) greets(c *trackedConn, login Login) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.login = login
	if _, open := l.open[c]; open {
		l.open[c] = true
		l.ready.Add(1)
	}
}

// opener opens the connections to one server, greets the server, and tracks them.
type opener struct {
	tracker func() *connTracker
	dial    dialer
	greet   greeter
	slots   chan struct{} // limits the connections: the pool exceeds its own limit while it dials
	moves   bool          // whether Sentinels name the server, and may name another
	age     time.Duration // the greatest age of a connection; 0: unlimited
}

// newDialer returns the dialer of an opener of up to n connections.
//
// If it cannot dial, it returns a connection that fails instead of an error. After PoolSize dial errors, go-redis' pool
// would dial only once a second, and OnConnect and Limiter do not change that. The breaker decides how often an
// unavailable Redis is dialed.
func newDialer(o opener, n int) dialer {
	o.slots = make(chan struct{}, n)
	return func(ctx context.Context, network, addr string) (connection, error) {
		k, err := o.open(ctx, network, addr)
		if err != nil {
			return failedConn{dialError{err}}, nil //nolint:nilerr // see above
		}
		return k, nil
	}
}

// open opens a connection.
func (o *opener) open(ctx context.Context, network, addr string) (*trackedConn, error) {
	select {
	case o.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k, to, err := o.connect(ctx, network, addr)
	if err != nil {
		<-o.slots
		return nil, err
	}
	l := o.tracker()
	k.closed = sync.OnceFunc(func() {
		l.remove(k)
		<-o.slots
	})
	k.again = func(ctx context.Context) (*trackedConn, error) { return o.reopen(ctx, network, addr) }
	var login Login
	if err = errReplaced; l.add(k, to) {
		login, err = o.greet(ctx, k, false)
	}
	if err != nil {
		_ = k.Close()
		return nil, err
	}
	k.stage = greeted
	l.greets(k, login)
	return k, nil
}

// reopen opens a connection that is to take the place of one to the same name.
func (o *opener) reopen(ctx context.Context, network, addr string) (*trackedConn, error) {
	k, to, err := o.connect(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if err = errMoved; !o.moves || o.tracker().isLed(to) {
		k.login, err = o.greet(ctx, k, true)
	}
	if err != nil {
		_ = k.Close()
		return nil, err
	}
	return k, nil
}

// connect opens a connection that is not tracked and not greeted yet.
func (o *opener) connect(ctx context.Context, network, addr string) (k *trackedConn, to named, err error) {
	born := time.Now()
	c, err := o.dial(ctx, network, addr)
	if err != nil {
		return nil, to, err
	}
	n, is := nameOf(c)
	if is {
		c = n.Conn
	}
	if o.moves {
		to = n
	}
	o.tracker().opened.Add(1)
	k = &trackedConn{Conn: c, closed: func() {}, born: born, life: lifeOf(o.age)}
	if remote := c.RemoteAddr(); remote != nil {
		k.remote = remote.String()
	}
	return k, to, nil
}

// masterHook opens the connections to the master that Sentinels name, as newDialer does. Connections to the Sentinels
// are opened by the same dialer, but without hooks. Only some of the Sentinels may be configured.
type masterHook struct {
	opener

	most    int
	tls     func() *tls.Config // for the master alone; nil: the dialer does TLS, if configured
	timeout time.Duration
}

// DialHook implements [goredis.Hook]. While no Sentinel names a master, dialing fails.
func (h masterHook) DialHook(next goredis.DialHook) goredis.DialHook {
	if h.tls != nil {
		next = securing(next, h.tls, h.timeout)
	}
	h.dial, h.moves = next, true
	return newDialer(h.opener, h.most)
}

// ProcessHook implements [goredis.Hook].
func (masterHook) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// ProcessPipelineHook implements [goredis.Hook].
func (masterHook) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

// The stages of a greeted connection. The pool's client greets the server once more, with HELLO: the connection swallows
// that, and answers with an empty map in place of the server's description.
const (
	passed    = iota // reads and writes pass through
	greeted          // the next write is the client's HELLO
	helloSent        // the next read gets the answer

	emptyMap = "*0\r\n"
)

// trackedConn is a connection that frees its slot when it is closed.
type trackedConn struct {
	net.Conn
	closed  func()
	retired atomic.Bool
	reads   time.Time // the deadline of reads
	heard   bool      // whether the server has sent anything else than said
	said    string    // an error that the server sent as its first reply
	stage   int8      // such as greeted

	// Of the newest connection: next, or else Conn.
	born   time.Time
	life   time.Duration
	login  Login
	remote string // its address

	again func(context.Context) (*trackedConn, error) // opens a connection to replace Conn
	next  atomic.Pointer[trackedConn]                 // replaces Conn when the pool next lends it; nil: none
	mu    sync.Mutex                                  // guards changes of Conn, and Close
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	defer c.closed()
	c.mu.Lock()
	defer c.mu.Unlock()
	if fresh := c.next.Swap(nil); fresh != nil {
		_ = fresh.Conn.Close()
	}
	return c.Conn.Close()
}

// SetReadDeadline implements net.Conn.
func (c *trackedConn) SetReadDeadline(t time.Time) error {
	c.reads = t
	return c.Conn.SetReadDeadline(t)
}

// lateRead is how long after its deadline a read must time out to be repeated, and how long the repeated read may take.
const lateRead = time.Millisecond

// read reads, and once more if the timeout comes late: the process stood still when the deadline passed, and the reply
// may have arrived meanwhile. A read that begins after its deadline fails without looking for data.
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

// tlsAlert is the first byte of the answer of a server that expects TLS to a client without. saysTLS describes it.
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
	if err != nil && c.next.Load() != nil && errors.Is(err, net.ErrClosed) { // the pool has not called SyscallConn
		c.turn()
		n, err = c.Conn.Write(b)
	}
	return n, c.explain(err)
}

// explain wraps an error in earlyClose if the server has closed a new connection, with the reason that the server sent.
// A Redis at its maxclients does that. The client takes the reason for the reply to its greeting, and may lose it.
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

// SyscallConn is called by the pool before it lends a connection. It fails if the connection is retired, and replaces it
// if another is to take its place. The pool then reads from what SyscallConn returns whether the server has closed the
// connection, or has sent something. With TLS, that is the connection below once a reply was read: until then the
// server's records after the handshake would look like replies.
func (c *trackedConn) SyscallConn() (syscall.RawConn, error) {
	if c.retired.Load() {
		return nil, errRetired
	}
	if c.next.Load() != nil {
		c.turn()
	}
	conn := c.Conn
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok && c.heard {
		conn = over.NetConn()
	}
	return rawOf(conn)
}

// failedConn stands for a connection that could not be opened. Its methods return the error, so that the pool takes it
// for a connection that the server has closed.
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
