package memory

import (
	"sync"
	"sync/atomic"

	"github.com/dianalimiter/diana/stores"
)

// Blocks are the blocks of the keys of a zone that this process knows: in a zone that is
// counted here all of them, otherwise those that Redis has reported. They do not belong to
// a table, because they outlive a change of rules. Their number is bounded; a block for
// which there is no room is not kept.
type Blocks struct {
	// Ended is when the blocks of the zone last ended, because no rule of it blocked any more, in
	// microseconds on the clock of this process; 0: they did not.
	Ended int64

	// OnEnd is called when these end so.
	OnEnd func()

	max    atomic.Int64
	count  atomic.Int64
	hand   atomic.Uint64 // where makeRoom goes on
	shards [blockShards]blockShard
}

// KnownBlock is what this process knows of a block. All times are in microseconds.
type KnownBlock struct {
	Until  int64 // when it ends, on the clock of the store
	Span   int64 // how long it lasts; none is longer, whatever the clock says
	Offset int64 // by how much the clock of the store was ahead of this process' when it was asked
	Asked  int64 // when a store in Redis was asked, on the clock of this process
	Rule   int32 // the index of its rule
	Step   int32 // as of [stores.Block]
}

// over reports whether a block has ended, and does not make the next one longer, at a time on the
// clock of the store.
func (x *KnownBlock) over(now int64) bool {
	return x.Until <= now && (x.Step == 0 || now-x.Until > stores.GrowsWithin)
}

const (
	blockShards = 64
	blockBytes  = 128 // that a block takes at most, with its part of the map

	// blocksToTry is how many blocks of a shard are tried for those that have ended, and
	// othersBlocks how many of other shards, to make room: of a few blocks all.
	blocksToTry  = 16
	othersBlocks = 64
)

type blockShard struct {
	mu   sync.Mutex
	keys map[stores.Key]KnownBlock
	_    [48]byte
}

// NewBlocks returns room for the blocks of at most that many keys.
func NewBlocks(maxKeys int64) *Blocks {
	b := new(Blocks)
	b.SetMax(maxKeys)
	return b
}

// BlocksOf returns the blocks of a counter's zone, nil if none of its rules blocks.
func BlocksOf(c *stores.Counter) *Blocks {
	if c.Blocked == nil {
		return nil
	}
	return c.Blocked.(*Blocks) //nolint:forcetypeassert // as TableOf
}

// SetMax changes the highest number of blocks.
func (b *Blocks) SetMax(n int64) { b.max.Store(n) }

// Memory returns the most bytes that the blocks can take.
func (b *Blocks) Memory() int64 { return b.max.Load() * blockBytes }

// Destruct implements caddy.Destructor. No rule of the zone blocks any more.
func (b *Blocks) Destruct() error {
	if b.OnEnd != nil {
		b.OnEnd()
	}
	return nil
}

func (b *Blocks) shard(k stores.Key) *blockShard { return &b.shards[k.Lo%blockShards] }

// Find returns the block of a key at a time on the clock of the store, if it is blocked. A
// block that is over is forgotten. None lasts longer than its span, even if the clock was set
// back.
func (b *Blocks) Find(k stores.Key, now int64) (KnownBlock, bool) {
	x, ok := b.Last(k, now)
	return x, ok && x.Until > now
}

// FindAt is Find at a time on the clock of this process.
func (b *Blocks) FindAt(k stores.Key, local int64) (KnownBlock, bool) {
	x, ok := b.LastAt(k, local)
	return x, ok && x.Until > local+x.Offset
}

// Last returns the last block of a key at a time on the clock of the store, if the key is blocked or
// its next block is longer for that.
func (b *Blocks) Last(k stores.Key, now int64) (KnownBlock, bool) {
	return b.find(k, func(KnownBlock) int64 { return now })
}

// LastAt is Last at a time on the clock of this process.
func (b *Blocks) LastAt(k stores.Key, local int64) (KnownBlock, bool) {
	return b.find(k, func(x KnownBlock) int64 { return local + x.Offset })
}

func (b *Blocks) find(k stores.Key, at func(KnownBlock) int64) (x KnownBlock, ok bool) {
	if b == nil || b.count.Load() == 0 {
		return x, false
	}
	s := b.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok = s.keys[k]; !ok {
		return x, false
	}
	now := at(x)
	if x.over(now) {
		b.remove(s, k)
		return KnownBlock{}, false
	}
	if x.Until > now+x.Span {
		x.Until = now + x.Span
		s.keys[k] = x
	}
	return x, true
}

// Follow moves the block of a key if the clock of the store was set, as a snapshot is moved:
// what is left of it stays.
func (b *Blocks) Follow(k stores.Key, now Instant) {
	if b == nil || b.count.Load() == 0 {
		return
	}
	s := b.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.keys[k]; ok {
		d := now.stepped(x.Offset)
		x.Until, x.Offset = x.Until+d, x.Offset+d
		s.keys[k] = x
	}
}

// Set sets the block of a key at a time on the clock of the store. It returns false if there is
// no room for it.
func (b *Blocks) Set(k stores.Key, x KnownBlock, now int64) bool {
	local := now - x.Offset
	b.makeRoom(local)
	s := b.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.keys[k]; !has {
		b.forget(s, local, blocksToTry)
		if b.count.Add(1) > b.max.Load() {
			b.count.Add(-1)
			return false
		}
	}
	if s.keys == nil {
		s.keys = make(map[stores.Key]KnownBlock)
	}
	s.keys[k] = x
	return true
}

// makeRoom forgets some blocks that have ended, whether they are over or not, if there is no room.
func (b *Blocks) makeRoom(local int64) {
	left := othersBlocks
	for range b.shards {
		if left <= 0 || b.count.Load() < b.max.Load() {
			return
		}
		s := &b.shards[b.hand.Add(1)%blockShards]
		s.mu.Lock()
		left -= b.forget(s, local, min(left, blocksToTry))
		s.mu.Unlock()
	}
}

// forget tries at most that many of a shard's blocks, and forgets those that are over, and if there
// is no room those that have ended, at a time on the clock of this process. It returns how many it
// tried.
func (b *Blocks) forget(s *blockShard, local int64, most int) (tried int) {
	full := b.count.Load() >= b.max.Load()
	for k, x := range s.keys {
		if tried == most {
			break
		}
		tried++
		if now := local + x.Offset; x.over(now) || full && x.Until <= now {
			b.remove(s, k)
		}
	}
	return tried
}

func (b *Blocks) remove(s *blockShard, k stores.Key) {
	delete(s.keys, k)
	b.count.Add(-1)
}

// Reset forgets the block of a key.
func (b *Blocks) Reset(k stores.Key) {
	s := b.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, has := s.keys[k]; has {
		b.remove(s, k)
	}
}

// Count returns how many keys are blocked at a time on the clock of this process.
func (b *Blocks) Count(local int64) (n int64) {
	if b.count.Load() == 0 {
		return 0
	}
	for i := range b.shards {
		b.shards[i].mu.Lock()
		for _, x := range b.shards[i].keys {
			if x.Until > local+x.Offset {
				n++
			}
		}
		b.shards[i].mu.Unlock()
	}
	return n
}

// Walk returns a function that appends the keys of blocks to keys, up to its capacity, and returns
// where to continue: first at the beginning, and then where it ended the last time. local is the
// clock of this process.
func (b *Blocks) Walk(local func() int64) func(keys []stores.Key, from Cursor) ([]stores.Key, Cursor) {
	var rest []stores.Key // of the shards before
	return func(keys []stores.Key, from Cursor) ([]stores.Key, Cursor) {
		for ; len(rest) == 0 && from.shard < len(b.shards); from.shard++ {
			rest = b.shards[from.shard].living(local())
		}
		n := min(cap(keys)-len(keys), len(rest))
		keys, rest = append(keys, rest[:n]...), rest[n:]
		from.done = len(rest) == 0 && from.shard == len(b.shards)
		return keys, from
	}
}

// living returns the keys of the blocks that are not over, at a time on the clock of this process.
func (s *blockShard) living(local int64) (keys []stores.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, x := range s.keys {
		if !x.over(local + x.Offset) {
			keys = append(keys, k)
		}
	}
	return keys
}
