package limiter

import (
	"sync"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/internal/lib/pool"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// blocksPerKey is how many blocks there may be for each key of a zone: a key that is blocked
// leaves its room to another.
const blocksPerKey = 2

// blocks are the blocks of the zones in use. They survive a change of rules and a reload,
// unless no rule of the zone blocks any more.
var blocks pool.Pool[*memory.Blocks] = "blocks" // by zoneID

// acquireBlocks returns the blocks of the zone.
func (a *activeRules) acquireBlocks(z *Zone) *memory.Blocks {
	if a.blocks == nil {
		a.blocks = blocks.Acquire(&a.refs, z.id, func() *memory.Blocks {
			b := memory.NewBlocks(blocksPerKey * z.maxKeys)
			b.Ended = ended.remove(z.id)
			b.OnEnd = func() { ended.add(z.id, clock.Now()) }
			return b
		})
		a.tables[0].Blocks = a.blocks
	}
	return a.blocks
}

// endings are when no rule of a zone blocked any more: what was blocked before is not when a rule of
// the zone blocks again, also not by what Redis still has.
type endings struct {
	mu sync.Mutex
	at map[zoneID]int64
}

var ended = endings{at: make(map[zoneID]int64)}

// mostEndings bounds the memory. A zone that is forgotten has the blocks that Redis still has.
const mostEndings = 4096

// add notes that no rule of a zone blocks any more.
func (e *endings) add(z zoneID, now int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for other := range e.at {
		if len(e.at) < mostEndings {
			break
		}
		delete(e.at, other)
	}
	e.at[z] = now
}

// remove returns when that was last, 0 if never, and forgets it, because a rule of the zone blocks again.
func (e *endings) remove(z zoneID) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.at[z]
	delete(e.at, z)
	return at
}
