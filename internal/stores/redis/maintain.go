package redis

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	beatEvery  = time.Second
	probeEvery = 300 * time.Millisecond
)

// maintainer does what no request does: it sends heartbeats, which also probe a
// Redis that is unavailable, and charges debts.
type maintainer struct {
	conn      *conn
	instances *instances
	hands     *handovers

	inspected bool // by a call that succeeded
	refused   bool // a refused call led to an inspection
}

// run maintains the store until ctx ends.
func (m *maintainer) run(ctx context.Context) {
	for {
		opened := m.conn.breaker.opened.Load()
		err := m.instances.beat(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := beatEvery
		if err == nil {
			m.maintain(ctx, opened)
		} else {
			m.probe(ctx, err)
			wait = probeEvery
		}
		// Jitter spreads the heartbeats of many instances.
		wait = wait*3/4 + rand.N(wait/2) //nolint:gosec // it only spreads load
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// maintain follows a heartbeat that succeeded. The breaker had opened so many times
// when it was sent.
func (m *maintainer) maintain(ctx context.Context, opened uint64) {
	m.conn.breaker.close(opened)
	m.hands.pay(ctx)
	if !m.inspected {
		m.inspected = inspect(ctx, m.conn)
	}
}

// probe follows a heartbeat that failed.
func (m *maintainer) probe(ctx context.Context, err error) {
	m.instances.fewer = time.Time{}
	if m.conn.breaker.open.Load() {
		m.conn.distrust(classify(err))
	} else {
		m.conn.fail(err)
	}
	if !m.refused && classify(err) == FailRefused { // a right may be missing
		m.refused = true
		inspect(ctx, m.conn)
	}
}
