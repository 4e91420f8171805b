package redis

import (
	"context"
	"time"
)

// sentinelConn is a connection of a client that asks Sentinels, or opens one to the master that they name:
// it is not known which, until [masterHook] takes that to the master. That to a Sentinel logs in itself, as a
// connection of newDialer does, and fails when it has reached its greatest age: then the client asks the
// Sentinels at their configured addresses again.
type sentinelConn struct {
	named
	login func(connection) error
	age   time.Duration // 0: none
	stage int8          // of the greeting by the client
	err   error         // of the login
}

// toSentinels returns a dialer of connections to Sentinels.
func (o *ConnOptions) toSentinels(dial dialer) dialer {
	login := func(c connection) error {
		ctx, cancel := context.WithTimeout(context.Background(), o.DialTimeout)
		defer cancel()
		_, err := o.logIn(false, true, func(l Login) error { return o.greet(ctx, c, l, 0) })
		return err
	}
	return func(ctx context.Context, network, addr string) (connection, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &sentinelConn{named: c.(named), login: login, age: o.MaxAge, stage: greeted}, nil //nolint:forcetypeassert // all are
	}
}

// Write implements net.Conn.
func (c *sentinelConn) Write(b []byte) (int, error) {
	switch {
	case c.err != nil:
		return 0, c.err
	case c.stage == greeted:
		if c.err = c.login(c.Conn); c.err != nil {
			return 0, c.err
		}
		c.stage = helloSent
		return len(b), nil
	case c.age > 0 && time.Since(c.at) > c.age:
		return 0, errAged
	}
	return c.Conn.Write(b)
}

// Read implements net.Conn.
func (c *sentinelConn) Read(b []byte) (int, error) {
	if c.stage == helloSent {
		c.stage = passed
		return copy(b, emptyMap), nil
	}
	return c.Conn.Read(b)
}
