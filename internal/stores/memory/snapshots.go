package memory

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Snapshots hold what an instance has to know of keys in Redis to continue without
// Redis, to return to it, and to put back what Redis has lost: a few integers and a
// hash for each key. No bound depends on a snapshot: a key without one starts from
// zero. handover.go uses them.
type Snapshots struct {
	table  *Table
	layout snapshotLayout
	slots  slots
	shard  []snapshotShard // as many as the table has: those of few keys in one, where each finds room
}

type snapshotShard struct {
	slab
	scratch []int64 // of the rules' snapshots
	resets  resets
}

// Snapshots returns the table's snapshots, nil if it is of this process alone, or a rule cannot be handed over.
func (t *Table) Snapshots() *Snapshots {
	t.snapshotsOnce.Do(func() {
		if t.alone {
			return
		}
		n, stride := &Snapshots{table: t, shard: make([]snapshotShard, len(t.shards))}, snapshotWords
		if t.tagged {
			stride += keyWords
		}
		for _, r := range t.rules {
			p, ok := r.(algorithms.Handover)
			if !ok {
				return
			}
			_, lossy := r.(algorithms.Lossy)
			x := ruleWords{told: stride, end: stride + p.SnapshotWords(), lossy: lossy}
			n.layout, stride = append(n.layout, x), x.end
		}
		if len(t.rules) > 0 {
			n.slots.init(stride, t.slots.seed)
			t.snapshots = n
		}
	})
	return t.snapshots
}

func (n *Snapshots) shardOf(mix uint64) *snapshotShard { return &n.shard[mix&uint64(len(n.shard)-1)] }

// find returns a key's snapshot, or nil.
func (n *Snapshots) find(s *snapshotShard, k stores.Key, mix uint64) snapshot {
	return n.slots.find(&s.index, k, mix)
}

// lockKey locks the shard of a key's snapshot, and returns it and the snapshot, nil if there is
// none.
func (n *Snapshots) lockKey(k stores.Key) (s *snapshotShard, x snapshot) {
	mix := n.slots.mix(k)
	s = n.shardOf(mix)
	s.mu.Lock()
	return s, n.find(s, k, mix)
}

// make returns the snapshot of a zone's key, a new one if it has none, or nil if there is no room:
// a debt is not evicted for the state of another key. A snapshot that still counts is evicted only if none that
// does not is left. local is the clock of this process.
func (n *Snapshots) make(s *snapshotShard, z *stores.ZoneCheck, mix uint64, local int64) snapshot {
	if x := n.find(s, z.Key, mix); x != nil {
		return x
	}
	idle := func(x []int64) bool { return !snapshot(x).owes() }
	spent := func(x []int64) bool { return idle(x) && !n.layout.live(x, z.Counter.Rules, local) }
	shard, evict := func(i int) *slab { return &n.shard[i].slab }, func(i int) bool { return n.evict(&n.shard[i].slab, spent) }
	if n.table.known.Add(1) > n.table.max.Load() && !n.evict(&s.slab, spent) && !n.slots.elsewhere(&s.slab, len(n.shard), shard, evict) && !n.evict(&s.slab, idle) {
		n.table.known.Add(-1)
		return nil
	}
	return n.slots.insert(&s.slab, z.Key, mix, n.table.all())
}

// evict removes a snapshot of a shard that may go.
func (n *Snapshots) evict(s *slab, may func(slot []int64) bool) bool {
	i, ok := n.slots.evictable(s, may)
	if ok {
		n.slots.remove(s, i)
		n.table.known.Add(-1)
	}
	return ok
}

// setOrigin notes the tag of a zone's key, and under which of the zone's counters it was last.
func (n *Snapshots) setOrigin(x snapshot, z *stores.ZoneCheck) {
	x[snapshotMarks] = x[snapshotMarks]&allMarks | z.Counter.Override<<overrideShift
	if n.table.tagged {
		x[snapshotWords], x[snapshotWords+1] = int64(z.Tag.Hi), int64(z.Tag.Lo)
	}
}

// Origin returns the tag of a key, and the Override of the counter under which it was last.
func (n *Snapshots) Origin(k stores.Key) (tag stores.Key, override int64) {
	s, x := n.lockKey(k)
	defer s.mu.Unlock()
	if x == nil {
		return k, 0
	}
	if tag = k; n.table.tagged {
		tag = stores.Key{Hi: uint64(x[snapshotWords]), Lo: uint64(x[snapshotWords+1])}
	}
	return tag, x.override()
}

// reset forgets what is known of a key.
func (x snapshot) reset() {
	if x != nil {
		x[snapshotMarks] &^= allMarks
		clear(x[snapshotWords:])
	}
}

// Cursor is how far a walk over the snapshots has come.
type Cursor struct {
	shard int
	at    uint32
	done  bool
}

// Done says whether the walk is at its end.
func (c Cursor) Done() bool { return c.done }

// walk appends the keys of the snapshots that are wanted to keys, up to its capacity, and
// returns where to continue.
func (n *Snapshots) walk(keys []stores.Key, from Cursor, wanted func(snapshot) bool) ([]stores.Key, Cursor) {
	for ; from.shard < len(n.shard); from = (Cursor{shard: from.shard + 1}) {
		s := &n.shard[from.shard]
		s.mu.Lock()
		for ; from.at < s.next && len(keys) < cap(keys); from.at++ {
			if x := n.slots.at(s.pages.nth(from.at)); wanted(x) {
				keys = append(keys, keyIn(x))
			}
		}
		more := from.at < s.next
		s.mu.Unlock()
		if more {
			return keys, from
		}
	}
	from.done = true
	return keys, from
}
