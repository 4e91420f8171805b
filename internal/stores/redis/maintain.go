package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
)

const (
	beatEvery   = time.Second
	probeEvery  = 300 * time.Millisecond
	beatTimeout = 250 * time.Millisecond
	renewEvery  = 10 * time.Second
	lingerEvery = 250 * time.Millisecond
	lapse       = 30 * time.Second // the script's LAPSE
	maxLate     = 10_000           // releases that wait for Redis at most
)

var errOpen = errors.New("the store is not being asked")

// tend does what has to be done beside requests, one thing at a time: it tells
// Redis that the instance lives, looks for a Redis that is away, renews places
// and gives back those that could not be given back.
func (s *Store) tend(ctx context.Context) {
	renewed, inspected, refused := time.Now(), false, false
	for {
		err := s.beat(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := beatEvery
		if err == nil {
			s.breaker.close()
			s.permits.retry(ctx, s)
			s.payDebts(ctx)
			if time.Since(renewed) >= renewEvery {
				renewed = time.Now()
				s.permits.renew(ctx, s)
			}
			if !inspected {
				inspected = s.inspect(ctx)
			}
		} else {
			s.fewer = time.Time{}
			if s.breaker.open.Load() {
				s.conn.failed(classify(err))
			} else {
				s.fail(err)
			}
			if !refused && classify(err) == FailRefused { // it may lack a right
				refused = true
				s.inspect(ctx)
			}
			wait = probeEvery
		}
		// Jitter keeps many instances from asking at the same moment.
		wait = wait*3/4 + rand.N(wait/2) //nolint:gosec // it only spreads load
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// linger keeps the places of requests that outlive the store, as a WebSocket does
// a reload that changes the store's options, until the last was given back.
func (s *Store) linger() {
	s.Observe(noObserver{}) // another store may have its name by now
	ctx := context.Background()
	renewed := time.Time{}
	for s.permits.any() {
		s.breaker.close() // nothing else is asked through here
		s.permits.retry(ctx, s)
		if time.Since(renewed) >= renewEvery {
			renewed = time.Now()
			s.permits.renew(ctx, s)
		}
		time.Sleep(lingerEvery)
	}
	_ = s.conn.client.Close()
}

// noObserver is told anything.
type noObserver struct{}

func (noObserver) StoreUp(string)                      {}
func (noObserver) StoreDown(string, Failure, error)    {}
func (noObserver) StoreError(string, Failure, error)   {}
func (noObserver) ClockSteps(string)                   {}
func (noObserver) Live(string, int)                    {}
func (noObserver) StoreWarning(string, string, string) {}

// permits are the places that this instance's requests hold in Redis.
type permits struct {
	mu   sync.Mutex
	held map[uint64]string // the key in Redis, by the place's number
	late []lateRelease     // to be given back again
}

type lateRelease struct {
	release
	until time.Time
}

// keepPlaces remembers the places that an ask took, so that they are renewed.
// If nobody knows whether it took them, they are given back.
func (s *Store) keepPlaces(check *stores.Check, err error) {
	for i := range check.Zones {
		z := &check.Zones[i]
		if z.Permit.ID == 0 {
			continue
		}
		switch {
		case err != nil:
			s.permits.giveBack(finishOf(s.conn.prefix, z, 0))
			z.Permit = stores.Permit{}
		case z.Charged:
			z.Permit.Taken, z.Permit.Mode = true, stores.ModeShared
			keys := namesOf(s.conn.prefix, z)
			s.permits.mu.Lock()
			s.permits.held[z.Permit.ID] = keys[1]
			s.permits.mu.Unlock()
		}
	}
}

// release gives back a place. The script knows a place that was given back
// before, so that this may be tried again until it is certain.
func (s *Store) release(ctx context.Context, z *stores.ZoneCheck, charge int64) {
	if !z.KeepsPermit(charge) {
		s.permits.mu.Lock()
		delete(s.permits.held, z.Permit.ID)
		s.permits.mu.Unlock()
	}
	f := finishOf(s.conn.prefix, z, charge)
	if err := s.finish(ctx, f); err != nil {
		if !errors.Is(err, errOpen) {
			s.fail(err)
		}
		s.permits.giveBack(f)
	}
}

// any says whether requests hold places, or places have to be given back.
func (p *permits) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)+len(p.late) > 0
}

func (p *permits) giveBack(f release) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.late) < maxLate {
		p.late = append(p.late, lateRelease{f, time.Now().Add(lapse)})
	}
}

// retry gives back what could not be given back. What would have lapsed in the
// meantime is let go.
func (p *permits) retry(ctx context.Context, s *Store) {
	p.mu.Lock()
	late := p.late
	p.late = nil
	p.mu.Unlock()
	for i, l := range late {
		if time.Now().After(l.until) {
			continue
		}
		if err := s.finish(ctx, l.release); err != nil {
			p.mu.Lock()
			p.late = append(p.late, late[i:]...)
			p.mu.Unlock()
			return
		}
	}
}

// renew puts off the lapse of the places that are still held, key by key.
func (p *permits) renew(ctx context.Context, s *Store) {
	asks := make(map[string][]byte)
	p.mu.Lock()
	for id, key := range p.held {
		ask := asks[key]
		if ask == nil {
			ask = []byte{opRenew, 1, 0, 0, 0, 0}
		}
		binary.LittleEndian.PutUint32(ask[2:], binary.LittleEndian.Uint32(ask[2:])+1)
		asks[key] = binary.LittleEndian.AppendUint64(ask, id)
	}
	p.mu.Unlock()
	for key, ask := range asks {
		call, cancel := context.WithTimeout(ctx, max(s.o.Timeout, beatTimeout))
		_, err := s.conn.call(call, []string{key}, ask)
		cancel()
		if err != nil {
			s.fail(err)
			return
		}
	}
}
