package redis

import (
	"context"
	"sync/atomic"
	"time"
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

// Destruct ends the maintenance and the reports of the store: another store may have its
// name by now. The connections are closed when no request needs them any more. It
// implements caddy.Destructor.
func (s *Store) Destruct() error {
	s.Observe(noObserver{})
	s.start.Do(func() {}) // a store that was never started stays so
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.done.Wait()
	used := s.uses.recently(s.lingers)
	go s.permits.drain(func() bool {
		s.fallback.hands.pay(context.Background()) // of requests that were finished without Redis
		return used()
	})
	return nil
}
