package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// prepared is what this package derives from a counter once: its
// [stores.Counter.Prepared].
type prepared struct {
	serial uint64 // never reused
	packed packed
	shares atomic.Pointer[shares]
	learns atomic.Bool // its keys have snapshots

	dated atomic.Pointer[datedRules]

	// searches is how many rules the start of a block counts like, in addition.
	searches int
}

var serials atomic.Uint64

// prepare returns what is derived from a counter.
func prepare(c *stores.Counter) *prepared {
	if p, ok := c.Prepared.Load().(*prepared); ok {
		return p
	}
	c.Prepared.CompareAndSwap(nil, &prepared{serial: serials.Add(1), packed: pack(c), searches: searches(c)})
	return c.Prepared.Load().(*prepared) //nolint:forcetypeassert // nothing else is stored there
}

// datedRules are the code and the arguments of each rule during one period of the calendar.
type datedRules struct {
	from, to int64
	rules    []byte
}

// rulesAt returns the code and the arguments of each rule by a node's clock.
func (p *prepared) rulesAt(c *stores.Counter, at *clock) []byte {
	if !p.packed.dated {
		return p.packed.rules
	}
	now := at.now()
	if d := p.dated.Load(); d != nil && now >= d.from && now < d.to {
		return d.rules
	}
	d := &datedRules{to: noEnd, rules: packRules(c, now)}
	for _, r := range c.Rules {
		if r, dated := r.(algorithms.Dated); dated {
			from, to := r.Present(now)
			d.from, d.to = max(d.from, from), min(d.to, to)
		}
	}
	p.dated.Store(d)
	return d.rules
}

// cacheSlot distributes the keys of all counters over the n slots of a cache.
func cacheSlot(z *stores.ZoneCheck, n uint64) uint64 {
	return (z.Key.Lo ^ prepare(z.Counter).serial*0x9e3779b97f4a7c15) >> 20 % n
}

// shares are a counter's rules for one of several instances.
type shares struct {
	of    int64 // instances, in millionths
	rules []algorithms.Rule
}

// shareOf returns the rules for one of n instances, n in millionths.
func shareOf(c *stores.Counter, n int64) []algorithms.Rule {
	p := prepare(c)
	if s := p.shares.Load(); s != nil && s.of == n {
		return s.rules
	}
	s := &shares{n, c.Split(n)}
	p.shares.Store(s)
	return s.rules
}
