package topk

import (
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/metrics"
	"github.com/dianalimiter/diana/stores"
)

// Keys estimates the busiest, the most denied and the most costly keys of a zone, in bounded memory. The
// zero value is ready for use.
type Keys struct {
	busy, denied, costly atomic.Pointer[Sketch] // nil: no keys yet

	mu    sync.Mutex
	names map[stores.Key]name // of frequent keys, with log_key
}

// Destruct implements caddy.Destructor.
func (*Keys) Destruct() error { return nil }

// keys are those of the zones in use. They survive reloads.
var keys pool.Pool[*Keys] = "top keys" // by the identities of zones

// Acquire returns the keys of a zone with an identity.
func Acquire(r *pool.References, id any) *Keys {
	return keys.Acquire(r, id, func() *Keys { return new(Keys) })
}

func sketchIn(p *atomic.Pointer[Sketch]) *Sketch {
	if s := p.Load(); s != nil {
		return s
	}
	p.CompareAndSwap(nil, new(Sketch))
	return p.Load()
}

// Count counts a request of a key, at an instant in microseconds and with random bits for
// sampling. why is why it was denied, if it was. It reports whether [Keys.Name] should be called: for frequent keys, at
// exponentially growing intervals.
func (t *Keys) Count(k stores.Key, why metrics.Cause, now int64, random uint32) bool {
	times := sketchIn(&t.busy).Add(k.Hi, k.Lo, now, random, 1, 0)
	if why != metrics.CauseNone {
		times = max(times, sketchIn(&t.denied).Add(k.Hi, k.Lo, now, random, 1, uint32(why)))
	}
	return times > 1 && bits.OnesCount64(times) <= 2
}

// CountCost counts what a request of a key has cost in the end, like [Keys.Count]. It reports whether
// [Keys.Name] should be called.
func (t *Keys) CountCost(k stores.Key, cost, now int64, random uint32) bool {
	n := uint64(min(cost, maxCounted))
	return sketchIn(&t.costly).Add(k.Hi, k.Lo, now, random, n, 0) > n
}

// maxCounted is the greatest cost that a request counts as.
const maxCounted = 1 << 40

const (
	maxNames = 4 * Kept
	maxShown = 256 // longest text of a key, in bytes
)

// Name stores the parts of a key. If there are too many keys, all are dropped first; those of
// frequent keys are soon stored again.
func (t *Keys) Name(k stores.Key, parts func() []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.names[k]; known {
		return
	}
	if t.names == nil || len(t.names) >= maxNames {
		t.names = make(map[stores.Key]name)
	}
	t.names[k] = newName(parts())
}

// name is what is kept of the parts of a key.
type name struct {
	text  string   // as people read it
	parts []string // nil: they are too long to be kept
}

// newName copies what is kept of parts, so that a long text is not retained.
func newName(parts []string) (n name) {
	s := strings.Join(parts, " ")
	if n.text = strings.Clone(s[:min(len(s), maxShown)]); len(s) > maxShown {
		return n
	}
	for _, p := range parts {
		n.parts = append(n.parts, strings.Clone(p))
	}
	return n
}

// Hit is a key with an estimate of its count, which halves about every minute, as the
// admin API answers it.
type Hit struct {
	Key  string `json:"key"`            // hash of the key
	Name string `json:"name,omitempty"` // its parts; empty: unknown, or without log_key

	// Its parts one by one, by which block and allow name it; empty: as of name, or too long,
	// or it is not counted under its parts, because one is missing.
	Parts []string `json:"parts,omitempty"`

	Times uint64 `json:"times"`           // estimated count; of the most costly, the estimated cost
	Cause string `json:"cause,omitempty"` // why it was denied the last time; only of the most denied

	// Seconds until its block ends, as far as this instance knows; 0: it is not blocked.
	Blocked float64 `json:"blocked,omitempty"`
}

// Busiest returns at most n of the busiest keys, at an instant in microseconds.
func (t *Keys) Busiest(n int, now int64) []Hit { return t.list(t.busy.Load(), n, now) }

// MostDenied returns at most n of the most denied keys, at an instant in microseconds.
func (t *Keys) MostDenied(n int, now int64) []Hit { return t.list(t.denied.Load(), n, now) }

// MostCostly returns at most n of the keys whose requests cost most, at an instant in microseconds.
func (t *Keys) MostCostly(n int, now int64) []Hit { return t.list(t.costly.Load(), n, now) }

func (t *Keys) list(s *Sketch, n int, now int64) []Hit {
	hits := []Hit{}
	if s == nil {
		return hits
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range s.Top(n, now) {
		k := stores.Key{Hi: c.Hi, Lo: c.Lo}
		hits = append(hits, Hit{Key: k.String(), Name: t.names[k].text, Parts: t.names[k].parts, Times: c.Times, Cause: metrics.Cause(c.Note).String()})
	}
	return hits
}
