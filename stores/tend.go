package stores

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
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
func (s *Shared) tend(ctx context.Context) {
	renewed, inspected, refused := time.Now(), false, false
	for {
		err := s.beat(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := beatEvery
		if err == nil {
			s.breaker.close()
			s.places.retry(ctx, s)
			s.payDebts(ctx)
			if time.Since(renewed) >= renewEvery {
				renewed = time.Now()
				s.places.renew(ctx, s)
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
func (s *Shared) linger() {
	s.Watch(nobody{}) // another store may have its name by now
	ctx := context.Background()
	renewed := time.Time{}
	for s.places.any() {
		s.breaker.close() // nothing else is asked through here
		s.places.retry(ctx, s)
		if time.Since(renewed) >= renewEvery {
			renewed = time.Now()
			s.places.renew(ctx, s)
		}
		time.Sleep(lingerEvery)
	}
	_ = s.conn.client.Close()
}

// nobody is told anything.
type nobody struct{}

func (nobody) StoreUp(string)                     {}
func (nobody) StoreDown(string, Failure, error)   {}
func (nobody) StoreError(string, Failure, error)  {}
func (nobody) ClockSteps(string)                  {}
func (nobody) Live(string, int)                   {}
func (nobody) StoreAdvice(string, string, string) {}

// heldPlaces are the places that this instance's requests hold in Redis.
type heldPlaces struct {
	mu   sync.Mutex
	held map[uint64]string // the key in Redis, by the place's number
	late []latePlace       // to be given back again
}

type latePlace struct {
	finishing
	until time.Time
}

// keepPlaces remembers the places that an ask took, so that they are renewed.
// If nobody knows whether it took them, they are given back.
func (s *Shared) keepPlaces(a *Ask, err error) {
	for i := range a.Items {
		it := &a.Items[i]
		if it.hold.id == 0 {
			continue
		}
		switch {
		case err != nil:
			s.places.giveBack(finishOf(s.conn.prefix, it, 0))
			it.hold = hold{}
		case it.Charged:
			it.hold.taken, it.hold.mode = true, ModeShared
			keys := namesOf(s.conn.prefix, it)
			s.places.mu.Lock()
			s.places.held[it.hold.id] = keys[1]
			s.places.mu.Unlock()
		}
	}
}

// release gives back a place. The script knows a place that was given back
// before, so that this may be tried again until it is certain.
func (s *Shared) release(ctx context.Context, it *Item, charge int64) {
	if !it.keepsPlace(charge) {
		s.places.mu.Lock()
		delete(s.places.held, it.hold.id)
		s.places.mu.Unlock()
	}
	f := finishOf(s.conn.prefix, it, charge)
	if err := s.finish(ctx, f); err != nil {
		if !errors.Is(err, errOpen) {
			s.fail(err)
		}
		s.places.giveBack(f)
	}
}

// any says whether requests hold places, or places have to be given back.
func (p *heldPlaces) any() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)+len(p.late) > 0
}

func (p *heldPlaces) giveBack(f finishing) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.late) < maxLate {
		p.late = append(p.late, latePlace{f, time.Now().Add(lapse)})
	}
}

// retry gives back what could not be given back. What would have lapsed in the
// meantime is let go.
func (p *heldPlaces) retry(ctx context.Context, s *Shared) {
	p.mu.Lock()
	late := p.late
	p.late = nil
	p.mu.Unlock()
	for i, l := range late {
		if time.Now().After(l.until) {
			continue
		}
		if err := s.finish(ctx, l.finishing); err != nil {
			p.mu.Lock()
			p.late = append(p.late, late[i:]...)
			p.mu.Unlock()
			return
		}
	}
}

// renew puts off the lapse of the places that are still held, key by key.
func (p *heldPlaces) renew(ctx context.Context, s *Shared) {
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
