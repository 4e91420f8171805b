package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// sticky keeps connections of a client for calls that follow each other closely. To get a connection from
// the pool and to put it back takes 6 % of the instructions of a request, and a system call with which the pool
// finds out whether the server has closed it. A connection that was used within stickyFor is as good as one with
// a call under way: if it breaks, that call fails. So such a connection stays with the calls, as many as are in
// flight at once at a near server. It goes back to the pool, which looks at it, after an error, and with the first
// call or heartbeat that finds that it was not used for longer, or that any connection of its node was closed or
// retired meanwhile. It is given back after that call or heartbeat, which so gets another from the pool: the pool
// lends the one that it got last, and does not look at those below it.
//
// A Cluster's client chooses the node of each call, and has no such connections. Nor has a small pool, where
// they would lack for heartbeats and reports.
type sticky struct {
	client *goredis.Client

	mu   sync.Mutex
	free []holder // those that no call has, the last used last
}

// holder holds a connection from one call to the next. Its zero value is none.
type holder struct {
	is      bool
	conn    *goredis.Conn // nil: its calls do not follow each other closely, and ask the pool
	used    time.Time     // last
	changes uint64        // of the node's connections, when conn was taken from the pool
	old     *goredis.Conn // goes back to the pool after the call; nil: none
}

const stickyFor = time.Millisecond

// leastForSticky is the least size of a pool with sticky connections.
const leastForSticky = 2*callsInFlight + keptReady

// newSticky returns the sticky connections of a client with a pool of some size; nil: it has none.
func newSticky(client goredis.UniversalClient, size int) *sticky {
	single, ok := client.(*goredis.Client)
	if !ok || size < leastForSticky {
		return nil
	}
	return &sticky{client: single, free: slices.Repeat([]holder{{is: true}}, callsInFlight)}
}

// take returns a holder for a call; none if as many calls have one as may, and for heartbeats: they look after
// the pool.
func (s *sticky) take(ctx context.Context, o *once, now time.Time) (p holder) {
	if s == nil || o.beat || ctx.Err() != nil {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	if last < 0 {
		return p
	}
	p, s.free = s.free[last], s.free[:last]
	if p.stale(o.node, now) {
		p.old, p.conn = p.conn, nil
	}
	if p.conn == nil && now.Sub(p.used) < stickyFor {
		p.conn, p.changes = s.client.Conn(), o.node.tracker.changes.Load()
	}
	return p
}

// stale says whether a holder has a connection that may be closed.
func (p *holder) stale(n *server, now time.Time) bool {
	return p.conn != nil && (p.changes != n.tracker.changes.Load() || now.Sub(p.used) >= stickyFor)
}

// put takes back the holder of a call that has ended.
func (s *sticky) put(o *once, p holder, now time.Time, err error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.is {
		giveBack(&p.old)
		if p.used = now; err != nil {
			giveBack(&p.conn)
		}
		s.free = append(s.free, p)
	}
	if !o.beat {
		return
	}
	for i := range s.free {
		if q := &s.free[i]; q.stale(o.node, now) {
			giveBack(&q.conn)
		}
	}
}

// giveBack gives a connection back to the pool, if there is one.
func giveBack(c **goredis.Conn) {
	if *c != nil {
		_ = (*c).Close()
		*c = nil
	}
}

// over returns what a call is sent with.
func (p holder) over(client goredis.UniversalClient) interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
} {
	if p.conn != nil {
		return p.conn
	}
	return client
}
