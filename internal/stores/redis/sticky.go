package redis

import (
	"context"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// sticky keeps connections of a client for calls that follow each other closely. To get a connection from
// the pool and to put it back takes a tenth of the instructions of a request, and a system call with which the pool
// finds out whether the server has closed it. A connection that was used within stickyFor is as good as one with
// a call under way: if it breaks, that call fails. So such a connection stays with the calls, as many as are in
// flight at once at a near server. It goes back to the pool, which looks at it, once it was not used for longer,
// after an error, or if any connection of its node was closed or retired meanwhile.
//
// A Cluster's client chooses the node of each call, and has no such connections. Nor has a small pool, where
// they would lack for heartbeats and reports.
type sticky struct {
	client *goredis.Client

	mu   sync.Mutex
	free []stickyConn // those that no call uses, the last used last; at first they have no connection
}

// stickyConn is a connection of the pool that stays with the calls. Its zero value is none.
type stickyConn struct {
	conn    *goredis.Conn
	used    time.Time // last
	changes uint64    // of the node's connections, when it was taken from the pool
}

const stickyFor = 10 * time.Millisecond

// leastForSticky is the least size of a pool with sticky connections.
const leastForSticky = 2*callsInFlight + keptReady

// newSticky returns the sticky connections of a client with a pool of some size; nil: it has none.
func newSticky(client goredis.UniversalClient, size int) *sticky {
	single, ok := client.(*goredis.Client)
	if !ok || size < leastForSticky {
		return nil
	}
	return &sticky{client: single, free: make([]stickyConn, callsInFlight)}
}

// take returns a connection for a call; none if as many calls have one as may. Heartbeats always ask the pool, so
// that requests do not find what it dialed in vain during an outage, of which it looks at three in a row.
func (s *sticky) take(o *once, now time.Time) (k stickyConn) {
	if s == nil || o.beat {
		return k
	}
	s.mu.Lock()
	last := len(s.free) - 1
	if last < 0 {
		s.mu.Unlock()
		return k
	}
	k, s.free = s.free[last], s.free[:last]
	s.mu.Unlock()
	changes := o.node.tracker.changes.Load()
	if k.conn != nil && k.changes == changes && now.Sub(k.used) < stickyFor {
		return k
	}
	if k.conn != nil {
		_ = k.conn.Close()
	}
	return stickyConn{conn: s.client.Conn(), changes: changes}
}

// put takes back the connection of a call that has ended. After an error it goes back to the pool.
func (s *sticky) put(k stickyConn, now time.Time, err error) {
	if k.conn == nil {
		return
	}
	if k.used = now; err != nil {
		_ = k.conn.Close()
		k = stickyConn{}
	}
	s.mu.Lock()
	s.free = append(s.free, k)
	s.mu.Unlock()
}

// over returns what a call is sent with.
func (k stickyConn) over(client goredis.UniversalClient) interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
} {
	if k.conn != nil {
		return k.conn
	}
	return client
}
