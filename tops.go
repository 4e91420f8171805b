package diana

import (
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/topk"
)

// tops are the busiest and the most denied keys of a zone, about, in a size
// that never changes. They outlive a reload.
type tops struct {
	busy, denied atomic.Pointer[topk.Sketch] // nil: none yet

	mu    sync.Mutex
	names map[stores.Key]string // of those keys, where log_key shows them
}

// Destruct implements caddy.Destructor.
func (*tops) Destruct() error { return nil }

// sketches are those of the zones that run.
var sketches = caddy.NewUsagePool() // sketchKey → *tops

// sketchKey tells zones apart by what gives their keys' hashes a meaning.
type sketchKey struct {
	zone, key string
	hasher    hasher
}

func (z *zone) identity() sketchKey { return sketchKey{z.Name, z.key.identity(z.Zone), z.hasher} }

// provisionTops takes the zone's sketches.
func (z *zone) provisionTops() {
	key := z.identity()
	v, _, _ := sketches.LoadOrNew(key, func() (caddy.Destructor, error) { return new(tops), nil })
	z.refs.add(sketches, key)
	z.tops, _ = v.(*tops) // nothing else is put there
}

func sketchIn(p *atomic.Pointer[topk.Sketch]) *topk.Sketch {
	if s := p.Load(); s != nil {
		return s
	}
	p.CompareAndSwap(nil, new(topk.Sketch))
	return p.Load()
}

// rank counts what a zone decided for its busiest keys.
func (q *request) rank(u *use) {
	if u.z.tops == nil || u.outcome == skipped || u.key == (stores.Key{}) {
		return
	}
	now := q.ask.Now
	if now == 0 { // nobody was asked
		now = clock()
	}
	random := q.dice.Throw()
	times := sketchIn(&u.z.tops.busy).Add(u.key.Hi, u.key.Lo, now, random)
	if u.outcome == denied || u.outcome == shadowDenied {
		times = max(times, sketchIn(&u.z.tops.denied).Add(u.key.Hi, u.key.Lo, now, random))
	}
	if q.h.LogKey && times > 1 && bits.OnesCount32(times) <= 2 {
		u.z.tops.name(u.key, u.z, q.r)
	}
}

const (
	maxNames = 4 * topk.Kept
	maxShown = 256 // bytes of a key that are shown
)

// name remembers what a key is, while there is room: when there is none, all are
// forgotten, and those that still come often are remembered anew.
func (t *tops) name(k stores.Key, z *zone, r *http.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.names[k]; known {
		return
	}
	if t.names == nil || len(t.names) >= maxNames {
		t.names = make(map[stores.Key]string)
	}
	text := z.keyText(r)
	t.names[k] = string([]byte(text[:min(len(text), maxShown)])) // which keeps no long text
}

// statusOfTop are the keys of a zone that come most often.
type statusOfTop struct {
	Zone   string        `json:"zone"`
	Busy   []statusOfHit `json:"busiest"`
	Denied []statusOfHit `json:"most_denied"`
}

// statusOfHit is a key and about how often it came lately: what is longer ago
// counts half for each minute.
type statusOfHit struct {
	Key   string `json:"key"` // its hash
	Name  string `json:"name,omitempty"`
	Times uint32 `json:"times"`
}

const maxTop = 100

// top are the zone's busiest and most denied keys in this instance.
func (z *zone) top(n int) statusOfTop {
	s := statusOfTop{Zone: z.Name, Busy: []statusOfHit{}, Denied: []statusOfHit{}}
	if z.tops == nil {
		return s
	}
	s.Busy, s.Denied = z.tops.list(&z.tops.busy, n), z.tops.list(&z.tops.denied, n)
	return s
}

func (t *tops) list(p *atomic.Pointer[topk.Sketch], n int) []statusOfHit {
	hits := []statusOfHit{}
	sketch := p.Load()
	if sketch == nil {
		return hits
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range sketch.Top(n, clock()) {
		k := stores.Key{Hi: c.Hi, Lo: c.Lo}
		hits = append(hits, statusOfHit{k.String(), t.names[k], c.Times})
	}
	return hits
}
