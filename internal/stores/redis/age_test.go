package redis

import (
	"context"
	"crypto/tls"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/stores"
)

// rotating is a store whose login changes, under checks that never end.
type rotating struct {
	*Store
	events *downEvents
	logins atomic.Pointer[Logins]
	alone  atomic.Int64 // checks that Redis has not decided
	checks atomic.Int64
}

func startRotating(t *testing.T, o ConnOptions, login Login) *rotating {
	t.Helper()
	r := &rotating{events: new(downEvents)}
	r.set(login)
	o.Prefix, o.Timeout, o.DialTimeout = "diana", 5*time.Second, 5*time.Second
	o.Username, o.Password = login.Username, login.Password
	o.Secrets = &Secrets{
		Logins: func() (Logins, error) { return *r.logins.Load(), nil },
		TLS:    func() (*tls.Config, error) { return nil, nil }, //nolint:nilnil // there is none
	}
	r.Store = New(Options{Name: "redis", Clock: func() int64 { return time.Now().UnixMicro() }, ConnOptions: o}, r.events)
	r.Start(1)
	t.Cleanup(func() { _ = r.Destruct() })
	c := counterOfManyKeys(t)
	waitFor(t, "Redis decides", func() bool { return r.mode(t, c, newKey()) == stores.ModeShared })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if r.mode(t, c, newKey()) != stores.ModeShared {
				r.alone.Add(1)
			}
			r.checks.Add(1)
			time.Sleep(time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func (r *rotating) set(login Login) { r.logins.Store(&Logins{Servers: login, Sentinels: login}) }

// wantShared fails the test if a check was decided without Redis.
func (r *rotating) wantShared(t *testing.T, after string) {
	t.Helper()
	n := r.checks.Load()
	waitFor(t, "a hundred checks", func() bool { return r.checks.Load() >= n+100 })
	if alone := r.alone.Swap(0); alone > 0 {
		t.Errorf("%s: %d checks were decided without Redis", after, alone)
	}
}

// acl changes a user.
func acl(t *testing.T, srv *redistest.Server, rules ...any) {
	t.Helper()
	if err := srv.Client().Do(context.Background(), append([]any{"acl"}, rules...)...).Err(); err != nil {
		t.Fatal(err)
	}
}

// kill has the server close the connections of a user.
func kill(t *testing.T, srv *redistest.Server, user string) {
	t.Helper()
	if err := srv.Client().Do(context.Background(), "client", "kill", "user", user).Err(); err != nil {
		t.Fatal(err)
	}
}

// clientsOf returns the age in seconds of each connection of a store to a server.
func clientsOf(t *testing.T, srv *redistest.Server) (ages []int) {
	t.Helper()
	list, err := srv.Client().ClientList(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(` age=(\d+) .* cmd=(evalsha|ping|subscribe|hello) `).FindAllStringSubmatch(list, -1) {
		age, _ := strconv.Atoi(m[1])
		ages = append(ages, age)
	}
	return ages
}

func userWith(t *testing.T, srv *redistest.Server, user string, rules ...any) {
	t.Helper()
	acl(t, srv, append(append([]any{"setuser", user, "on"}, rules...), "allchannels", "allkeys", "+@all")...)
}

// TestPasswordChanges changes the password at the server and in the file, in each order. Connections that are
// open stay in use, and those that are opened later log in with what the server accepts.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	userWith(t, srv, "diana", ">one")
	r := startRotating(t, ConnOptions{Addresses: []string{srv.Addr}}, Login{"diana", "one"})
	loggedIn := func(password string) func() bool {
		return func() bool {
			l := r.conn.nodes.first.tracker
			l.mu.Lock()
			defer l.mu.Unlock()
			for c := range l.open {
				if c.login.Password != password {
					return false
				}
			}
			return len(l.open) > 0
		}
	}

	acl(t, srv, "setuser", "diana", ">two")
	r.set(Login{"diana", "two"})
	waitFor(t, "the connections have the new login", loggedIn("two"))
	acl(t, srv, "setuser", "diana", "<one")
	r.wantShared(t, "the server first, with both")
	if _, downs, _, cause := r.events.advice(); downs > 0 {
		t.Errorf("the store was away: %v", cause)
	}

	r.set(Login{"diana", "three"}) // the server does not know it yet
	kill(t, srv, "diana")
	waitFor(t, "a new connection", func() bool { return len(clientsOf(t, srv)) > 0 })
	waitFor(t, "Redis decides", func() bool { r.alone.Store(0); return !r.isDown() })
	r.wantShared(t, "the file first")
	acl(t, srv, "setuser", "diana", ">three", "<two")
	waitFor(t, "the connections have the new login", loggedIn("three"))
	r.wantShared(t, "the server second")

	acl(t, srv, "setuser", "diana", ">four", "<three") // nobody knows it
	kill(t, srv, "diana")
	waitFor(t, "the store is away", r.isDown)
	r.set(Login{"diana", "four"})
	waitFor(t, "the store is back", func() bool { return !r.isDown() })
	if advice, _, _, cause := r.events.advice(); !strings.Contains(advice, "password") || strings.Contains(cause.Error(), "three") {
		t.Errorf("advice %q of %v", advice, cause)
	}
}

// TestUserChanges moves to another user, before the one that was used until then is deleted, and before it
// loses its rights.
func TestUserChanges(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, user := range []string{"one", "two", "three"} {
		userWith(t, srv, user, ">"+user)
	}
	r := startRotating(t, ConnOptions{Addresses: []string{srv.Addr}, MaxAge: time.Hour}, Login{"one", "one"})
	r.set(Login{"two", "two"})
	waitFor(t, "the connections of the pool have the new user", func() bool {
		return r.conn.nodes.first.tracker.due(time.Now(), Login{"two", "two"}) == nil
	})
	r.wantShared(t, "another user")
	acl(t, srv, "deluser", "one")
	r.wantShared(t, "the user before is deleted")
	acl(t, srv, "setuser", "two", "-@all")
	waitFor(t, "the store is away", r.isDown)
	r.set(Login{"three", "three"})
	waitFor(t, "the store is back", func() bool { return !r.isDown() })
}

// TestAgedConnectionsAreReplaced replaces connections while checks are decided: each lives at most as long as it
// may, and no check waits or is decided alone.
func TestAgedConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := startRotating(t, ConnOptions{Addresses: []string{srv.Addr}, MaxAge: 2 * time.Second}, Login{})
	l := r.conn.nodes.first.tracker
	first := l.opened.Load()
	waitFor(t, "each connection is replaced twice", func() bool { return l.opened.Load() >= 3*first+4 })
	r.wantShared(t, "replaced connections")
	waitFor(t, "no old connection", func() bool {
		ages := clientsOf(t, srv)
		return len(ages) > 2 && slices.Max(ages) <= 5
	})
	if n := len(r.conn.nodes.first.tracker.open); n > r.conn.pool {
		t.Errorf("%d connections, want at most %d", n, r.conn.pool)
	}
}

// TestNameThatMoves moves a name to another server while the one before lives. All connections follow, that of
// the subscription too, and no check is decided alone.
func TestNameThatMoves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		age  time.Duration
		open bool // a connection is opened after the move
	}{{"by age", 2 * time.Second, false}, {"by another connection", time.Hour, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			one, two := redistest.Start(t), redistest.Start(t)
			var to atomic.Pointer[string]
			to.Store(&one.Addr)
			r := startRotating(t, ConnOptions{
				Addresses: []string{"redis.test:6379"}, MaxAge: c.age,
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, *to.Load())
				},
			}, Login{})
			waitFor(t, "a subscription", func() bool { return subscribers(t, one) == 1 })
			to.Store(&two.Addr)
			if c.open {
				held := make([]func() error, 0, r.conn.pool)
				for range r.conn.pool / 2 {
					k := r.conn.client.(*goredis.Client).Conn()
					if err := k.Ping(context.Background()).Err(); err != nil {
						t.Fatal(err)
					}
					held = append(held, k.Close)
				}
				for _, back := range held {
					_ = back()
				}
			}
			waitFor(t, "no connection to the server before", func() bool { return len(clientsOf(t, one)) == 0 })
			waitFor(t, "a subscription", func() bool { return subscribers(t, two) == 1 })
			r.wantShared(t, "a name that moves")
			if one.Client().Info(context.Background(), "server").Err() != nil {
				t.Error("the server before does not live any more")
			}
		})
	}
}

// subscribers returns how many listen to resets at a server.
func subscribers(t *testing.T, srv *redistest.Server) int64 {
	t.Helper()
	n, err := srv.Client().PubSubNumSub(context.Background(), resetChannel("diana")).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n[resetChannel("diana")]
}
