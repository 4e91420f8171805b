package outage

import (
	"context"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// A block lies in Redis beside the states of its key. An instance remembers those that it
// was told of: without Redis they go on, and with each check of the key that it sends while
// the block lasts, and after a loss of Redis' memory in the background, it puts the block
// back, if Redis does not know of a later one. A key that is blocked is denied from the denial
// cache mostly, so that this is rare.

// Block is a block on its way to Redis.
type Block struct {
	memory.KnownBlock

	// Zone has the counter, key and tag.
	Zone stores.ZoneCheck

	// Time is what time it should be in Redis by the clock that the block is on.
	Time int64

	// Tolerance is by how many microseconds an estimate of Redis' clock may be wrong.
	Tolerance int64
}

// Drop forgets the block, because the key was reset.
func (b *Block) Drop() { memory.BlocksOf(b.Zone.Counter).Reset(b.Zone.Key) }

// block returns the block of a zone's key that this instance knows; false if it knows none.
func (d *Handovers) block(c *stores.Counter, k, tag stores.Key) (b Block, ok bool) {
	now := d.redis.Now(tag)
	x, ok := memory.BlocksOf(c).FindAt(k, now.Local)
	if ok {
		b = Block{x, stores.ZoneCheck{Counter: c, Key: k, Tag: tag}, now.Local + x.Offset, now.Tolerance}
	}
	return b, ok
}

// Blocks returns the blocks of the keys of a check that this instance knows, to be put back in the
// same call.
func (d *Handovers) Blocks(check *stores.Check) (all []Block) {
	for i := range check.Zones {
		if z := &check.Zones[i]; z.Guarded() && !check.Peek {
			if b, ok := d.block(z.Counter, z.Key, z.Tag); ok {
				all = append(all, b)
			}
		}
	}
	return all
}

// blockSweep is how far the blocks of one zone are put back after a loss.
type blockSweep struct {
	next int          // part of the blocks
	keys []stores.Key // of the part before, that are still to be put back
	done bool
}

// putBack puts back the blocks that this instance knows of a counter's zone, from where it
// ended before, until end. It returns whether these were all, and whether no call failed.
func (d *Handovers) putBack(ctx context.Context, c *stores.Counter, end time.Time) (done, ok bool) {
	blocks := memory.BlocksOf(c)
	if blocks == nil {
		return true, true
	}
	from := d.blocks[blocks] // which several counters of a zone have in common
	if from == nil {
		from = new(blockSweep)
		d.blocks[blocks] = from
	}
	for !from.done && time.Now().Before(end) {
		if len(from.keys) == 0 {
			from.keys, ok = blocks.Keys(from.next, d.o.Clock())
			from.next, from.done = from.next+1, !ok
			continue
		}
		n := min(d.perCall(), len(from.keys))
		if err := d.sendBlocks(ctx, c, from.keys[:n]); err != nil && (ctx.Err() != nil || !d.o.Clustered) {
			return false, false // in a Cluster the next key may lie on another node
		}
		from.keys = from.keys[n:]
	}
	return from.done, true
}

// sendBlocks puts back the blocks of some keys in one call.
func (d *Handovers) sendBlocks(ctx context.Context, c *stores.Counter, keys []stores.Key) error {
	var all []Block
	for _, k := range keys {
		if !d.redis.Usable(k) {
			d.redis.Unswept(k)
			return errAway
		}
		if b, ok := d.block(c, k, k); ok {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		return ctx.Err()
	}
	err := d.redis.PutBlocks(ctx, all)
	if err != nil {
		d.redis.Unswept(keys[0])
	}
	return err
}
