package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores/observers"
	"github.com/dianalimiter/diana/stores"
)

// lingers is how long a store stays open after its last use when its configuration has
// been replaced. A server that shuts down still serves connections that were accepted
// before, and gives those without a request 5 s.
const lingers = 10 * time.Second

// uses counts the requests that use a store.
type uses struct {
	begun, ended atomic.Uint64
}

// Hold keeps the store open for a request, which may be decided or finished after the
// configuration has been replaced. It is followed by [Store.Release].
func (s *Store) Hold() { s.uses.begun.Add(1) }

// Release ends what Hold began.
func (s *Store) Release() { s.uses.ended.Add(1) }

// recently returns a function that says whether the store is used, or has been since the
// previous call or less than d ago.
func (u *uses) recently(d time.Duration) func() bool {
	begun, idle := u.begun.Load(), time.Now()
	return func() bool {
		if now := u.begun.Load(); now != begun || now != u.ended.Load() {
			begun, idle = now, time.Now()
			return true
		}
		return time.Since(idle) < d
	}
}

// Place says where the keys are: stores at one place share their counts.
func (o *Options) Place() string {
	addresses := slices.Sorted(slices.Values(o.Addresses))
	return fmt.Sprintf("%q %q %d %q %q", addresses, o.Master, o.DB, o.Prefix, o.Fleet)
}

// Place returns [Options.Place] of the store's options.
func (s *Store) Place() string { return s.o.Place() }

// PassOn passes what this store owes to Redis on to the store that follows it at the same place:
// what it admitted without Redis, and what its requests are charged later.
func (s *Store) PassOn(next stores.Shared) {
	if next, ok := next.(*Store); ok {
		next.past.add(s.past.list()...)
		next.past.lost(s.past.older.Load())
		s.fallback.Hands.PassOn(next.fallback.Hands)
	}
}

// Destruct ends the maintenance and the reports of the store. The connections are closed when no request
// needs them any more. It implements caddy.Destructor.
func (s *Store) Destruct() error {
	s.Observe(observers.Ended{Observer: s.conn.observer.get()})
	s.start.Do(func() {}) // a store that was never started stays so
	stop := s.stop
	if stop == nil {
		return nil
	}
	s.stop = nil // it ends once
	stop()
	s.done.Wait()
	go s.close(s.uses.recently(s.lingers))
	return nil
}

// close reports what requests hold that outlive the configuration, as a WebSocket does. When
// the last is released and used returns false, which is called in each round, it closes the
// connections.
func (s *Store) close(used func() bool) {
	ctx, stop := context.WithCancel(context.Background())
	m := &maintainer{conn: s.conn, hands: s.fallback.Hands, instances: &instances{
		conn: s.conn, process: s.conn.instance, fleet: s.o.Fleet, closing: true, live: new(Seen), lost: func(bool) {},
	}}
	var done sync.WaitGroup
	done.Go(func() { m.run(ctx) })
	for used() || s.permits.any() {
		s.renewals.renew(ctx)
		time.Sleep(retryEvery)
	}
	stop()
	done.Wait()
	_ = s.conn.client.Close()
	s.fallback.Hands.Close()
}
