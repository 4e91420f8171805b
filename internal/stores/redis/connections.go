package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type (
	connection = net.Conn
	dialer     = func(ctx context.Context, network, addr string) (connection, error)
)

// connTracker are the connections of one client to its servers.
type connTracker struct {
	grace time.Duration // how long a call may take

	mu   sync.Mutex
	open map[*trackedConn]struct{} // those that may be used

	opened atomic.Uint64 // how many there ever were
}

func newConnTracker(grace time.Duration) *connTracker {
	return &connTracker{grace: grace, open: make(map[*trackedConn]struct{})}
}

// retire has no connection used again that is open now: after a failure it may
// lead to a server that is gone, or that is no longer the master, and the pool
// would offer it to one request after another. Calls that are under way are
// left to end.
func (l *connTracker) retire() {
	l.mu.Lock()
	retired := l.open
	l.open = make(map[*trackedConn]struct{})
	l.mu.Unlock()
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

func (l *connTracker) forget(c *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// dialer keeps no more than n connections open to one server: the pool's own
// bound lets a few more through while it dials.
//
// It never fails, but returns a connection that does: after as many failures to
// dial as the pool is large the pool would try only once a second, however
// often it is asked. How often a Redis that is away is asked is the breaker's
// business.
func (l *connTracker) dialer(dial dialer, n int) dialer {
	places := make(chan struct{}, n)
	return func(ctx context.Context, network, addr string) (connection, error) {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return broken{unopened{ctx.Err()}}, nil
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			<-places
			return broken{unopened{err}}, nil //nolint:nilerr // see above
		}
		l.opened.Add(1)
		k := &trackedConn{Conn: c}
		k.closed = sync.OnceFunc(func() {
			l.forget(k)
			<-places
		})
		l.mu.Lock()
		l.open[k] = struct{}{}
		l.mu.Unlock()
		return k, nil
	}
}

// trackedConn is a connection that gives back its place when it is closed.
type trackedConn struct {
	net.Conn
	closed  func()
	retired atomic.Bool
	heard   bool   // whether the server ever said anything but
	said    string // an error, at first
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// Read implements net.Conn.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard {
		if text, is := bytes.CutPrefix(b[:n], []byte("-")); is && c.said == "" {
			text, _, _ = bytes.Cut(text, []byte("\r\n"))
			c.said = string(text)
		} else {
			c.heard = true
		}
	}
	return n, c.explain(err)
}

// Write implements net.Conn.
func (c *trackedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

// explain tells a server that hangs up on a new connection from one that goes
// away. A Redis with too many clients does so, and says why; but the client
// takes that for the answer to its greeting, and it may be lost on the way.
func (c *trackedConn) explain(err error) error {
	if err == nil || c.heard || c.retired.Load() || errors.Is(err, net.ErrClosed) || isTimeout(err) {
		return err
	}
	return hungUp{err, c.said}
}

// hungUp is why a server took a connection and closed it before it was asked
// anything.
type hungUp struct {
	error
	said string // by the server, if it was heard
}

func (h hungUp) Error() string {
	if h.said != "" {
		return h.said
	}
	return "hung up on a new connection: " + h.error.Error()
}

// Is and As look into the error. Unwrap would let the client throw this one away.
func (h hungUp) Is(target error) bool { return errors.Is(h.error, target) }
func (h hungUp) As(target any) bool   { return errors.As(h.error, target) }

var errRetired = errors.New("the connection was opened before a failure")

// SyscallConn lets the pool see, before it offers a connection, whether it may
// be used and whether the server has closed it. With TLS it sees only the
// former, or it would take TLS' own records for replies.
func (c *trackedConn) SyscallConn() (syscall.RawConn, error) {
	if c.retired.Load() {
		return nil, errRetired
	}
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return unseen{}, nil
}

// unseen is a connection into which nobody may look.
type unseen struct{}

func (unseen) Control(func(uintptr)) error    { return nil }
func (unseen) Read(func(uintptr) bool) error  { return nil }
func (unseen) Write(func(uintptr) bool) error { return nil }

// unopened is why a connection could not be opened: what was to be sent on it
// never was.
type unopened struct{ error }

// Is and As are as those of hungUp.
func (u unopened) Is(target error) bool { return errors.Is(u.error, target) }
func (u unopened) As(target any) bool   { return errors.As(u.error, target) }

// broken is a connection that could not be opened. Whoever uses it learns why;
// the pool takes it for one that the server has closed.
type broken struct{ err unopened }

func (b broken) Read([]byte) (int, error)              { return 0, b.err }
func (b broken) Write([]byte) (int, error)             { return 0, b.err }
func (b broken) SyscallConn() (syscall.RawConn, error) { return nil, b.err }
func (broken) Close() error                            { return nil }
func (broken) LocalAddr() net.Addr                     { return &net.TCPAddr{} }
func (broken) RemoteAddr() net.Addr                    { return &net.TCPAddr{} }
func (broken) SetDeadline(time.Time) error             { return nil }
func (broken) SetReadDeadline(time.Time) error         { return nil }
func (broken) SetWriteDeadline(time.Time) error        { return nil }
