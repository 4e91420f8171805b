package redis

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

// putBlock is a block on its way to Redis.
type putBlock struct {
	blocks *memory.Blocks
	key    stores.Key
	names  []string
	op     []byte
}

// newPutBlock returns what puts back the block of a zone's key that this instance knows;
// false if it knows none.
func newPutBlock(prefix string, z *stores.ZoneCheck, local, tolerance int64) (p putBlock, ok bool) {
	blocks := memory.BlocksOf(z.Counter)
	b, ok := blocks.FindAt(z.Key, local)
	if !ok {
		return p, false
	}
	op := []byte{opBlock, 2}
	for _, v := range [...]int64{b.Until, b.Span, int64(b.Rule), local + b.Offset, tolerance} {
		op = appendNumber(op, v)
	}
	name := string(appendBlock(nil, prefix, z))
	return putBlock{blocks: blocks, key: z.Key, names: []string{name, name + resetSuffix}, op: op}, true
}

// answered reads the reply to a block. A key that was reset since is not blocked.
func (p *putBlock) answered(r *reply) {
	if r.failed() == nil && r.byte() != 0 {
		p.blocks.Reset(p.key)
	}
}

// putBlocks returns what puts back the blocks of the keys of a check.
func (d *handovers) putBlocks(check *stores.Check) (all []putBlock) {
	for i := range check.Zones {
		if z := &check.Zones[i]; guarded(z) && !check.Peek {
			if p, ok := newPutBlock(d.o.Prefix, z, d.o.Clock(), d.tolerance()); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// learnBlock remembers the block that a decision reported.
func (f *fallback) learnBlock(z *stores.ZoneCheck, now int64) {
	local := f.o.Clock()
	memory.BlocksOf(z.Counter).Set(z.Key, memory.KnownBlock{
		Until: z.Block.Until, Span: z.Block.Span, Offset: now - local, Rule: z.Block.Rule,
	}, now)
	f.hands.learns(z)
}

// blockSweep is how far the blocks of one zone are put back after a loss.
type blockSweep struct {
	next int          // part of the blocks
	keys []stores.Key // of the part before, that are still to be put back
	done bool
}

// putBack puts back the blocks that this instance knows of a counter's zone, from where it
// ended before, until end. It returns whether these were all, and whether no call failed.
func (d *handovers) putBack(ctx context.Context, c *stores.Counter, end time.Time) (done, ok bool) {
	blocks, perCall := memory.BlocksOf(c), handoversPerCall
	if blocks == nil {
		return true, true
	}
	if d.conn.o.Cluster {
		perCall = 1 // the keys lie in different slots
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
		n := min(perCall, len(from.keys))
		if err := d.sendBlocks(ctx, c, from.keys[:n]); err != nil && (ctx.Err() != nil || !d.conn.o.Cluster) {
			return false, false // in a Cluster the next key may lie on another node
		}
		from.keys = from.keys[n:]
	}
	return from.done, true
}

// sendBlocks puts back the blocks of some keys in one call.
func (d *handovers) sendBlocks(ctx context.Context, c *stores.Counter, keys []stores.Key) error {
	var all []putBlock
	q := newCall(time.Time{}, keys[0])
	for _, k := range keys {
		if !d.conn.usable(k) {
			d.unswept(k, true)
			return errOpen
		}
		z := stores.ZoneCheck{Counter: c, Key: k, Tag: k}
		if p, ok := newPutBlock(d.o.Prefix, &z, d.o.Clock(), d.tolerance()); ok {
			all = append(all, p)
			q.add(p.names, p.op)
		}
	}
	if len(all) == 0 {
		return ctx.Err()
	}
	ctx, cancel := d.conn.background(ctx)
	defer cancel()
	r, _, err := d.conn.call(ctx, q)
	for i := range all {
		if err == nil {
			all[i].answered(&r)
		}
	}
	if err != nil {
		d.unswept(keys[0], true)
	}
	return err
}
