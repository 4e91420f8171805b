package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// A connection is replaced when it has reached its greatest age, when the login has changed, and when another
// one leads to another server: the name in the address may have moved while the old server lives. The new
// connection is opened beside requests, and takes the place of the old one when the pool lends that next:
// no request waits for it. If it cannot be opened, or its login is refused, the old one stays.

const (
	renewedAtOnce = 4               // connections of a node, with each heartbeat
	renewsAgain   = 5 * time.Second // after one could not be replaced
)

// errMoved says that the Sentinels name another master than that of the connections.
var errMoved = errors.New("the Sentinels name another master")

// lifeOf returns how long a connection lives. Jitter spreads their ends.
func lifeOf(greatest time.Duration) time.Duration {
	if greatest == 0 {
		return 1<<63 - 1
	}
	return greatest - rand.N(greatest/10+1) //nolint:gosec // it only spreads load
}

// due returns a connection that is to be replaced; nil: there is none.
func (l *connTracker) due(now time.Time, login Login) *trackedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.renews) {
		return nil
	}
	for c, ready := range l.open {
		old := now.Sub(c.born) >= c.life || c.login != login || c.born.Before(l.moved) && c.remote != l.remote
		if ready && old {
			return c
		}
	}
	return nil
}

// leadsTo notes where a connection leads that was opened now: the others may lead to another server. l.mu is
// held.
func (l *connTracker) leadsTo(c *trackedConn) {
	if l.remote != "" && l.remote != c.remote {
		l.moved = c.born
	}
	l.remote = c.remote
}

// replaces puts a new connection in the place of c. It says whether the new one leads to another address.
func (l *connTracker) replaces(c, fresh *trackedConn) (elsewhere bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	elsewhere = c.remote != fresh.remote
	c.born, c.life, c.login, c.remote = fresh.born, fresh.life, fresh.login, fresh.remote
	l.leadsTo(c)
	if before := c.next.Swap(fresh); before != nil { // the pool has not lent it
		_ = before.Conn.Close()
	}
	l.changes.Add(1) // calls give it back to the pool
	time.AfterFunc(l.grace, c.endOld)
	return elsewhere
}

// endOld closes the connection whose place another one has, if the pool has not lent it since.
func (c *trackedConn) endOld() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.Load() != nil {
		_ = c.Conn.Close()
	}
}

// turn switches to the new connection, if there is one. Nobody uses the old one.
func (c *trackedConn) turn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := c.next.Swap(nil)
	if fresh == nil {
		return
	}
	_ = c.Conn.Close()
	c.Conn, c.heard = fresh.Conn, true
	_ = c.Conn.SetDeadline(time.Time{}) // that of its greeting
}

// renew replaces connections to a node, beside requests.
func (c *conn) renew(ctx context.Context, n *server) {
	for range renewedAtOnce {
		login := c.o.login(readEvery).Servers
		old := n.tracker.due(time.Now(), login)
		if old == nil {
			return
		}
		one, cancel := context.WithTimeout(ctx, c.o.DialTimeout)
		fresh, err := old.again(one)
		cancel()
		switch {
		case errors.Is(err, errMoved):
			n.tracker.retire(time.Now())
			c.fill()
			return
		case err != nil:
			if refusesLogin(err) {
				c.fail(err)
			}
			n.tracker.renewLater(time.Now().Add(renewsAgain))
			return
		}
		if n.tracker.replaces(old, fresh) {
			c.subscription.replace(n) // it may lead to the old server
		}
	}
}

// renewLater postpones replacing connections until a time.
func (l *connTracker) renewLater(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renews = t
}
