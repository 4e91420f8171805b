package redis

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

type (
	connection = net.Conn
	dialer     = func(ctx context.Context, network, addr string) (connection, error)
)

// named is a connection that knows to what address it was opened, and from when on: a master's, since
// Sentinels named it.
type named struct {
	net.Conn
	addr string
	at   time.Time
}

// SyscallConn lets the pool of a Sentinel's client check the connection.
func (n named) SyscallConn() (syscall.RawConn, error) { return rawOf(n.Conn) }

// nameOf returns the name of a connection that has one.
func nameOf(c connection) (named, bool) {
	if s, is := c.(*sentinelConn); is {
		return s.named, true
	}
	n, is := c.(named)
	return n, is
}

// naming returns a dialer whose connections are named.
func naming(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (connection, error) {
		at := time.Now()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return named{c, addr, at}, nil
	}
}

// rawOf returns what the pool checks of a connection.
func rawOf(conn net.Conn) (syscall.RawConn, error) {
	if raw, ok := conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return opaqueConn{}, nil
}

// opaqueConn is a connection that the pool cannot check.
type opaqueConn struct{}

func (opaqueConn) Control(func(uintptr)) error    { return nil }
func (opaqueConn) Read(func(uintptr) bool) error  { return nil }
func (opaqueConn) Write(func(uintptr) bool) error { return nil }

// securing returns a dialer that speaks TLS over the named connections of another, and names them as
// that does. The server's name is that in its address, unless the options have one.
func securing(dial dialer, options func() *tls.Config, timeout time.Duration) dialer {
	return func(ctx context.Context, network, addr string) (connection, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		n, ok := nameOf(c)
		if ok {
			c, addr = n.Conn, n.addr
		}
		server := options()
		if server.ServerName == "" {
			server = server.Clone()
			if server.ServerName, _, err = net.SplitHostPort(addr); err != nil {
				server.ServerName = addr // the path of a socket
			}
		}
		over := tls.Client(c, server)
		if err := over.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			if isTimeout(err) || ctx.Err() != nil {
				err = noHandshake{err}
			}
			return nil, err
		}
		n.Conn = over
		return n, nil
	}
}

// noHandshake is the error of a server that was connected to and did not answer in TLS in time.
type noHandshake struct{ error }

// Error implements error.
func (e noHandshake) Error() string { return "no TLS handshake in time: " + e.error.Error() }

// Unwrap returns the timeout.
func (e noHandshake) Unwrap() error { return e.error }
