package redis

import (
	"context"
	"errors"
	"net"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A connection is greeted when it is opened, which the pool does beside requests: HELLO, AUTH and
// SELECT take as many round trips, and a request over a new connection has no time for them. The
// pool's client greets each connection once more, without a name and a password. That greeting is not
// sent, but answered here.

// errGreeted ends what a client does with a connection that it has greeted.
var errGreeted = errors.New("greeted")

// greeter logs in at a server, and selects the database, over a new connection. newest: not with a login that
// was read earlier.
type greeter func(ctx context.Context, c connection, newest bool) (Login, error)

// greeting returns the greeter of servers.
func (o *ConnOptions) greeting() greeter {
	return func(ctx context.Context, c connection, newest bool) (Login, error) {
		return o.logIn(newest, false, func(l Login) error { return o.greet(ctx, c, l, o.DB) })
	}
}

// greet logs in, and selects a database. If its context is canceled, of which the client takes no notice, the
// connection is closed.
func (o *ConnOptions) greet(ctx context.Context, c connection, login Login, db int) error {
	client := goredis.NewClient(&goredis.Options{
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return kept{c}, nil },
		Username: login.Username, Password: login.Password, DB: db,
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		ContextTimeoutEnabled: true, ReadTimeout: o.DialTimeout, WriteTimeout: o.DialTimeout,
		ReadBufferSize: greetingSize, WriteBufferSize: greetingSize,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		OnConnect:                func(context.Context, *goredis.Conn) error { return errGreeted },
	})
	defer func() { _ = client.Close() }()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) { // otherwise its deadline has passed, by which the client reads
			_ = c.Close()
		}
	})
	defer stop()
	if err := client.Ping(ctx).Err(); !errors.Is(err, errGreeted) {
		return err
	}
	return nil
}

// greetingSize is the bytes of the buffers of a client that only greets.
const greetingSize = 4 << 10

// kept is a connection that stays open when the client is closed that greets over it.
type kept struct{ net.Conn }

// Close implements net.Conn.
func (kept) Close() error { return nil }
