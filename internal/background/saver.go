package background

import (
	"context"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

// SaveTimeout is the longest time that a well-behaved storage takes to store a value.
const SaveTimeout = 2 * time.Second

// Saver stores values in Caddy's storage, one at a time. Of the values that wait under
// one key only the last is stored. The zero value is ready for use.
type Saver struct {
	mu      sync.Mutex
	waiting map[string]saving // by key
	keys    []string          // of waiting, in order
	idle    chan struct{}     // closed when nothing waits any more; nil: nothing does
}

type saving struct {
	storage certmagic.Storage
	value   []byte
	failed  func(error)
}

// Save stores a value in the background. failed is called with an error of the storage.
func (s *Saver) Save(storage certmagic.Storage, key string, value []byte, failed func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(map[string]saving)
	}
	if _, waits := s.waiting[key]; !waits {
		s.keys = append(s.keys, key)
	}
	s.waiting[key] = saving{storage, value, failed}
	if s.idle == nil {
		s.idle = make(chan struct{})
		go s.run(s.idle)
	}
}

// run stores values until none waits.
func (s *Saver) run(idle chan struct{}) {
	defer close(idle)
	for key, v, ok := s.next(); ok; key, v, ok = s.next() {
		ctx, cancel := context.WithTimeout(context.Background(), SaveTimeout)
		err := v.storage.Store(ctx, key, v.value)
		cancel()
		if err != nil {
			v.failed(err)
		}
	}
}

func (s *Saver) next() (key string, v saving, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) == 0 {
		s.idle = nil
		return "", v, false
	}
	key, s.keys = s.keys[0], s.keys[1:]
	v = s.waiting[key]
	delete(s.waiting, key)
	return key, v, true
}

// Flush waits until every value is stored, for d at most.
func (s *Saver) Flush(d time.Duration) {
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-time.After(d):
	}
}
