package outage

import (
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// A block lies in Redis beside the states of its key. An instance remembers those that it
// was told of: without Redis they go on, and with each check of the key that it sends while
// the block lasts, and after a loss of Redis' memory in the background, it puts the block
// back, if Redis does not know of a later one. A blocked key is mostly denied without a call,
// so that this is rare. A block that has ended, but makes the next one longer, is put back only
// after a loss: with the check that finds the key lost, or in the background.

// block returns the block of a zone's key that this instance knows, or with last the last one, whether
// it is in force or makes the next one longer; nothing if it knows none.
func block(z *stores.ZoneCheck, now memory.Instant, last bool) (h Handover) {
	x, ok := memory.BlocksOf(z.Counter).LastAt(z.Key, now.Local)
	if ok && (last || x.Until > now.Local+x.Offset) {
		h = Handover{
			Block: &x, BlockTime: now.Local + x.Offset, Tolerance: now.Tolerance,
			Zone: stores.ZoneCheck{Counter: z.Counter, Subject: z.Subject},
		}
	}
	return h
}

// blocks are the keys of a counter's zone that have blocks.
type blocks struct {
	of   *taker
	c    *stores.Counter
	walk func([]stores.Key, memory.Cursor) ([]stores.Key, memory.Cursor)
}

func (s blocks) next(keys []stores.Key, from memory.Cursor) ([]stores.Key, memory.Cursor) {
	return s.walk(keys, from)
}

func (s blocks) counter() *stores.Counter  { return s.c }
func (blocks) tag(k stores.Key) stores.Key { return k }
func (blocks) lost() bool                  { return true }

func (s blocks) take(k stores.Key) (h Handover, more bool) {
	return block(&stores.ZoneCheck{Counter: s.c, Subject: stores.Subject{Key: k, Tag: k}}, s.of.redis.Now(k), true), false
}
