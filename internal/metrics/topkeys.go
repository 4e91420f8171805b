package metrics

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/topk"
)

// TopKeys estimates the busiest and the most denied keys of a zone, in a size that
// never changes. The zero value is ready.
type TopKeys struct {
	busy, denied atomic.Pointer[topk.Sketch] // nil: none yet

	mu    sync.Mutex
	names map[stores.Key]string // of frequent keys, where log_key shows them
}

// Destruct implements caddy.Destructor.
func (*TopKeys) Destruct() error { return nil }

func sketchIn(p *atomic.Pointer[topk.Sketch]) *topk.Sketch {
	if s := p.Load(); s != nil {
		return s
	}
	p.CompareAndSwap(nil, new(topk.Sketch))
	return p.Load()
}

// Count counts a request of a key at an instant in microseconds. Random is a random
// number. It reports whether this is a time to [TopKeys.Name] the key: now and
// then, for a key that comes often.
func (t *TopKeys) Count(k stores.Key, denied bool, now int64, random uint32) bool {
	times := sketchIn(&t.busy).Add(k.Hi, k.Lo, now, random)
	if denied {
		times = max(times, sketchIn(&t.denied).Add(k.Hi, k.Lo, now, random))
	}
	return times > 1 && bits.OnesCount32(times) <= 2
}

const (
	maxNames = 4 * topk.Kept
	maxShown = 256 // bytes of a key that are shown
)

// Name remembers the text of a key while there is room. When there is none, all are
// forgotten, and those that still come often are remembered anew.
func (t *TopKeys) Name(k stores.Key, text func() string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.names[k]; known {
		return
	}
	if t.names == nil || len(t.names) >= maxNames {
		t.names = make(map[stores.Key]string)
	}
	s := text()
	t.names[k] = string([]byte(s[:min(len(s), maxShown)])) // a copy: it keeps no long text
}

// Hit is a key and about how often it came lately: what is longer ago counts half
// for each minute.
type Hit struct {
	Key   stores.Key // its hash
	Name  string     // empty: not known
	Times uint32     // about
}

// Busiest returns at most n keys that come most often, at an instant in
// microseconds.
func (t *TopKeys) Busiest(n int, now int64) []Hit { return t.list(t.busy.Load(), n, now) }

// MostDenied returns at most n keys that are denied most often.
func (t *TopKeys) MostDenied(n int, now int64) []Hit { return t.list(t.denied.Load(), n, now) }

func (t *TopKeys) list(s *topk.Sketch, n int, now int64) []Hit {
	if s == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var hits []Hit
	for _, c := range s.Top(n, now) {
		k := stores.Key{Hi: c.Hi, Lo: c.Lo}
		hits = append(hits, Hit{k, t.names[k], c.Times})
	}
	return hits
}
