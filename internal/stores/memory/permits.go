package memory

import (
	"math/bits"
	"sync"

	"github.com/dianalimiter/diana/stores"
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
	mu   sync.Mutex
	held map[permitKey]entry

	// Costs that are held under other kinds of rules than that of the entry: of requests that
	// were under way when the rules changed.
	others map[costKey]int64
}

// entry is what requests of a key hold, and the kind of rules that the cost is of.
type entry struct {
	Held
	kinds string
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
	e := s.held[k]
	if e.kinds != z.Counter.Kinds {
		e.Cost = s.others[costKey{k, z.Counter.Kinds}]
	}
	return e.Held
}

// add adds to what is held of a zone's key. Its shard is locked.
func (h *Permits) add(z *stores.ZoneCheck, permits, cost int64) {
	s, k := &h.shards[shardOf(z)], permitKey{z.Counter.Zone, z.Key}
	e := s.held[k]
	e.Permits += permits
	switch {
	case cost == 0:
	case e.kinds == z.Counter.Kinds:
		e.Cost += cost
	case e.Cost == 0: // it is of this kind from now on
		other := costKey{k, z.Counter.Kinds}
		e.kinds, e.Cost = z.Counter.Kinds, s.others[other]+cost
		delete(s.others, other)
	default:
		s.addOther(costKey{k, z.Counter.Kinds}, cost)
	}
	if e.Held == (Held{}) {
		delete(s.held, k)
		return
	}
	if s.held == nil {
		s.held = make(map[permitKey]entry)
	}
	s.held[k] = e
}

// addOther adds to the cost that is held under a kind that is not that of the entry.
func (s *permitShard) addOther(k costKey, cost int64) {
	if s.others == nil {
		s.others = make(map[costKey]int64)
	}
	if s.others[k] += cost; s.others[k] == 0 {
		delete(s.others, k)
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
