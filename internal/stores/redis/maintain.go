package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
)

const (
	beatEvery  = time.Second
	probeEvery = 300 * time.Millisecond
)

// maintainer does what no request does: it watches the nodes, and hands over snapshots
// and debts.
type maintainer struct {
	conn      *conn
	instances *instances
	hands     *outage.Handovers

	watching map[*node]context.CancelFunc
	watchers sync.WaitGroup
}

// run maintains the store until ctx ends.
func (m *maintainer) run(ctx context.Context) {
	m.watching = make(map[*node]context.CancelFunc)
	defer m.watchers.Wait()
	for {
		m.conn.nodes.refresh(ctx)
		m.watchAll(ctx)
		if m.hands.Pay(ctx) && ctx.Err() == nil { // what concerns a node that is away waits for it
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-m.conn.back:
		case <-time.After(jittered(beatEvery)):
		}
	}
}

// jittered returns about d. Jitter spreads the heartbeats of many instances.
func jittered(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2) //nolint:gosec // it only spreads load
}

// watchAll starts a watcher for each new node, and ends those of nodes that are gone.
func (m *maintainer) watchAll(ctx context.Context) {
	gone := m.watching
	m.watching = make(map[*node]context.CancelFunc)
	for _, n := range m.conn.nodes.all() {
		stop := gone[n]
		if delete(gone, n); stop == nil {
			var one context.Context
			one, stop = context.WithCancel(ctx)
			m.watchers.Go(func() { m.watch(one, n) })
		}
		m.watching[n] = stop
	}
	for _, stop := range gone {
		stop()
	}
}

// beat sends a heartbeat to a node. What fails alone, because another program uses a key, is no failure
// of the node, which has run the script. The node has to accept what it has rejected of requests, too.
func (m *maintainer) beat(ctx context.Context, n *node, tag string) error {
	err := m.instances.beat(ctx, n, tag)
	if errors.As(err, new(failedOp)) {
		m.conn.fail(err)
		err = nil
	}
	rejected := n.rejected.Load()
	if err != nil || rejected == nil {
		return err
	}
	_, _, err = m.instances.count(ctx, n, rejected.tag, trySuffix, rejected.key)
	if err != nil && !errors.Is(err, errElsewhere) && !isMoving(err) && !errors.As(err, new(failedOp)) {
		return err
	}
	n.rejected.CompareAndSwap(rejected, nil)
	return nil
}

// watch sends heartbeats to a node, one at a time, until ctx ends. They close its
// breaker, and count the live instances.
func (m *maintainer) watch(ctx context.Context, n *node) {
	inspected, refused := false, false // whether it was inspected: after a call that succeeded, after one that was refused
	moving := ""                       // the tag of the last heartbeat, if its slot is being moved
	for {
		wait, opened, tag := beatEvery, n.breaker.opened.Load(), m.conn.nodes.tagOf(n, moving)
		doubted := n.doubted
		var err error
		moving = ""
		sent := time.Now()
		if tag != "" {
			err = m.beat(ctx, n, tag)
		}
		switch {
		case ctx.Err() != nil || !n.serves.Load():
			return
		case tag == "":
			wait = probeEvery
		case errors.Is(err, errElsewhere) || isMoving(err): // another tag is found at once
			wait, moving = probeEvery, tag
			n.breaker.beatFailed(err, time.Now())
		case err == nil:
			n.breaker.close(opened)
			n.distance.turn()
			m.conn.refill(n)
			m.renew(ctx, n)
			m.tellAlone(n)
			if n.unswept.Swap(false) {
				m.hands.LostMemory()
			}
			inspected = inspected || inspect(ctx, m.conn, n, tag)
		default:
			m.conn.beatFailed(&n.server, err, sent)
			doubted = nil // a failed heartbeat is not followed by another at once

			if classify(err) == stores.FailRejected { // another user may have the right
				m.renew(ctx, n)
			}
			if wait = probeEvery; !refused && classify(err) == stores.FailRejected { // a right may be missing
				refused = true
				inspect(ctx, m.conn, n, tag)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-doubted:
		case <-time.After(jittered(wait)):
		}
	}
}

// renew replaces connections to a node, beside its heartbeats.
func (m *maintainer) renew(ctx context.Context, n *node) {
	if n.renewing.CompareAndSwap(false, true) {
		m.watchers.Go(func() {
			defer n.renewing.Store(false)
			m.conn.renew(ctx, &n.server)
		})
	}
}

// tellAlone reports a node as away whose heartbeats succeed, if checks are decided without it, and
// as used when that is over.
func (m *maintainer) tellAlone(n *node) {
	why, opened := n.isAlone(time.Now(), m.conn.o.Timeout), n.breaker.opened.Load()
	if is := why != nil; is != n.toldAlone || opened != n.toldOpened {
		n.toldAlone, n.toldOpened = is, opened
		m.conn.nodes.changed(n, !is && !n.breaker.open.Load(), why)
	}
}
