package outage

import (
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// A block lies in Redis beside the states of its key. An instance remembers those that it
// was told of: without Redis they go on, and with each check of the key that it sends while
// the block lasts, and after a loss of Redis' memory in the background, it puts the block
// back, if Redis does not know of a later one. A key that is blocked is denied from the denial
// cache mostly, so that this is rare. One that has ended, but makes the next one longer, is put
// back only after a loss: with the check that finds the key forgotten, or in the background.

// block returns the block of a zone's key that this instance knows, or with last the last one, whether
// it is in force or makes the next one longer; false if it knows none.
func block(z *stores.ZoneCheck, now memory.Instant, last bool) (h Handover, ok bool) {
	x, ok := memory.BlocksOf(z.Counter).LastAt(z.Key, now.Local)
	if ok = ok && (last || x.Until > now.Local+x.Offset); ok {
		h = Handover{
			Block: &x, BlockTime: now.Local + x.Offset, Tolerance: now.Tolerance,
			Zone: stores.ZoneCheck{Counter: z.Counter, Key: z.Key, Tag: z.Tag},
		}
	}
	return h, ok
}

// blocksOf returns the keys of a counter's zone that have blocks.
func (d *Handovers) blocksOf(c *stores.Counter, b *memory.Blocks) source {
	tag := func(k stores.Key) stores.Key { return k }
	take := func(k stores.Key) (h Handover, more, ok bool) {
		h, ok = block(&stores.ZoneCheck{Counter: c, Key: k, Tag: k}, d.redis.Now(k), true)
		return h, false, ok
	}
	return source{c, b.Walk(d.o.Clock), tag, take, true}
}
