package limiter

import (
	"context"
	"slices"
	"time"

	"github.com/dianalimiter/diana/internal/lib/clock"
	"github.com/dianalimiter/diana/stores"
)

// finish makes the charge of a request that has ended, and releases its permit, for which others may wait.
func (z *Zone) finish(ctx context.Context, c *stores.ZoneCheck, charge int64) {
	z.charge(ctx, c, charge)
	z.common.queue.freed(c.Key)
}

// charge makes the charge, and reports if the zone was full of keys.
func (z *Zone) charge(ctx context.Context, c *stores.ZoneCheck, charge int64) {
	if z.store.Finish(ctx, c, charge); charge > 0 && c.Overflowed {
		z.reportOverflow(c, clock.Now())
	}
}

// maxLingering is how many requests of a zone whose clients have left hold a permit at most: a
// client that leaves and comes back under other keys must not fill the memory.
const maxLingering = 10_000

// linger charges the request of a client that has left, and releases its permit only after the
// zone's linger: what it started may still run. It returns false if the permit is to be released
// at once.
func (z *Zone) linger(ctx context.Context, c *stores.ZoneCheck, charge int64) bool {
	if z.Linger == 0 || c.Counter.InFlight == 0 || !c.HasPermit() {
		return false
	}
	common := z.common
	if common.lingering.Add(1) > maxLingering {
		common.lingering.Add(-1)
		return false
	}
	if z.store.kept != nil {
		z.store.kept.Hold()
	}
	held := *c
	held.Results = slices.Clone(c.Results) // c.Results belongs to the request
	held.KeepsPermit = true
	z.charge(ctx, &held, charge)
	copy(c.Results, held.Results)
	held.KeepsPermit, held.Cost = false, 0 // only the permit is left
	time.AfterFunc(time.Duration(z.Linger), func() {
		z.finish(context.Background(), &held, 0)
		common.lingering.Add(-1)
		if z.store.kept != nil {
			z.store.kept.Release()
		}
	})
	return true
}
