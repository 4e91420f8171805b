package redis

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// named is a connection that knows to what address it was opened.
type named struct {
	net.Conn
	addr string
}

// naming returns a dialer whose connections are named.
func naming(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (connection, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return named{c, addr}, nil
	}
}

// securing returns a dialer that speaks TLS over the named connections of another. The server's name is
// that in its address, unless config has one.
func securing(dial dialer, config *tls.Config, timeout time.Duration) dialer {
	return func(ctx context.Context, network, addr string) (connection, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if n, ok := c.(named); ok {
			c, addr = n.Conn, n.addr
		}
		server := config
		if server.ServerName == "" {
			server = config.Clone()
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
		return over, nil
	}
}

// noHandshake is the error of a server that was connected to and did not answer in TLS in time.
type noHandshake struct{ error }

// Error implements error.
func (e noHandshake) Error() string { return "no TLS handshake in time: " + e.error.Error() }

// Unwrap returns the timeout.
func (e noHandshake) Unwrap() error { return e.error }
