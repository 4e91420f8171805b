package memory

import (
	"math/bits"
	"sync"

	"github.com/dianalimiter/diana/internal/stores"
)

// Permits count what requests of this process hold until they are finished. Permits are
// counted by zone and key whatever the rules of the zone are, so that they outlive a
// change of the rules; costs that are held are counted by the kind of the rules, too, because
// they will be charged under it. There is an entry only for keys with requests in flight, which
// bounds their number. The zero value is empty.
type Permits struct{ shards [permitShards]permitShard }

// Destruct implements caddy.Destructor. What is still held is of use to nobody.
func (h *Permits) Destruct() error { return nil }

// Held is what the requests of one key hold.
type Held struct {
	Permits int64 // how many requests hold a permit
	Cost    int64 // what they may be charged later
}

// permitShards is how many locks there are: one for each bit of shardSet.
const permitShards = 64

// shardSet is a set of shards.
type shardSet uint64

type permitShard struct {
	mu      sync.Mutex
	permits map[permitKey]int64
	costs   map[costKey]int64
}

type permitKey struct {
	zone string
	key  stores.Key
}

type costKey struct {
	permitKey
	kinds string
}

func shardOf(z *stores.ZoneCheck) int { return int(z.Key.Lo % permitShards) }

// has reports whether the shard of a zone's key is in the set.
func (s shardSet) has(z *stores.ZoneCheck) bool { return s&(1<<shardOf(z)) != 0 }

// dependsOnHeld reports whether the decision of a zone depends on what requests hold.
func dependsOnHeld(z *stores.ZoneCheck, t *Table) bool {
	c := z.Counter
	return c.InFlight > 0 || c.HoldCost || z.Reserve || z.SeesHeld || t.held.Load() != 0
}

// lockFor locks the shards of the zones whose decision depends on what requests hold:
// those that hold something themselves, those of which other handlers do, and those with
// a cost that is held for the sake of another store.
func (h *Permits) lockFor(check *stores.Check) (locked shardSet) {
	for i := range check.Zones {
		if z := &check.Zones[i]; dependsOnHeld(z, TableOf(z.Counter)) {
			locked |= 1 << shardOf(z)
		}
	}
	for s := locked; s != 0; s &= s - 1 { // always in this order
		h.shards[bits.TrailingZeros64(uint64(s))].mu.Lock()
	}
	return locked
}

func (h *Permits) unlock(locked shardSet) {
	for s := locked; s != 0; s &= s - 1 {
		h.shards[bits.TrailingZeros64(uint64(s))].mu.Unlock()
	}
}

// of returns what is held of a zone's key. Its shard is locked.
func (h *Permits) of(z *stores.ZoneCheck) Held {
	s, k := &h.shards[shardOf(z)], permitKey{z.Counter.Zone, z.Key}
	return Held{Permits: s.permits[k], Cost: s.costs[costKey{k, z.Counter.Kinds}]}
}

// add adds to what is held of a zone's key. Its shard is locked.
func (h *Permits) add(z *stores.ZoneCheck, permits, cost int64) {
	s, k := &h.shards[shardOf(z)], permitKey{z.Counter.Zone, z.Key}
	addTo(&s.permits, k, permits)
	addTo(&s.costs, costKey{k, z.Counter.Kinds}, cost)
}

// addTo adds to a number of a map, which has none that is 0.
func addTo[K comparable](m *map[K]int64, k K, n int64) {
	switch sum := (*m)[k] + n; {
	case n == 0:
	case sum == 0:
		delete(*m, k)
	case *m == nil:
		*m = map[K]int64{k: sum}
	default:
		(*m)[k] = sum
	}
}

// Add adds to what is held of a zone's key.
func (h *Permits) Add(z *stores.ZoneCheck, permits, cost int64) {
	s := &h.shards[shardOf(z)]
	s.mu.Lock()
	defer s.mu.Unlock()
	h.add(z, permits, cost)
}

// Of returns what is held of a zone's key.
func (h *Permits) Of(z *stores.ZoneCheck) Held {
	s := &h.shards[shardOf(z)]
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.of(z)
}
