package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/scripts"
	"github.com/dianalimiter/diana/stores"
)

// prepared is what this package derives from a counter once: its
// [stores.Counter.Prepared].
type prepared struct {
	serial uint64 // never reused
	packed packed
	dated  atomic.Pointer[datedRules]

	// searches is the extra weight of starting a block in rulesPerCall.
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

// packed is the constant part of a counter's operations.
type packed struct {
	logs  bool
	view  int    // bytes of the states in a reply
	views int    // of them, at the end, bytes of the logs
	sizes []byte // of the value, and 0; with logs: up to the first ring, and how much to read
	rules []byte // code and arguments of each rule
	dated bool   // the arguments are those of [datedRules]
	grows []byte // for how long blocks last that follow each other
	codes string // of the third-party algorithms among them
}

const (
	logPrefix  = 2048 // bytes of a value with logs to read at once
	headerLogs = 16   // bytes before the states of a value with logs
	header     = 8    // bytes before the states of a value without logs
)

// pack returns the constant part of a counter's operations.
func pack(c *stores.Counter) (p packed) {
	fixed := 0
	var codes []byte
	for _, a := range c.Algorithms {
		codes = append(codes, scripts.Decide().Code(a))
	}
	p.codes = scripts.Decide().ThirdParty(codes)
	p.rules, p.grows = packRules(c, 0), packGrows(c)
	for _, r := range c.Rules {
		_, dated := r.(algorithms.Dated)
		p.dated = p.dated || dated
		if g, ok := r.(algorithms.Growing); ok {
			p.logs = true
			fixed += 8 * g.Header()
			p.views += 8 * g.View().Words()
		} else {
			fixed += 8 * r.Words()
		}
	}
	if p.logs {
		p.view = fixed + p.views
		fixed += headerLogs
		p.sizes = appendSize(appendSize(nil, fixed), max(fixed, logPrefix))
	} else {
		p.view = header + fixed
		p.sizes = appendSize(appendSize(nil, p.view), 0)
	}
	return p
}

// packRules returns the code and the arguments at now of each rule.
func packRules(c *stores.Counter, now int64) (b []byte) {
	for i, r := range c.Rules {
		b = append(b, scripts.Decide().Code(c.Algorithms[i]))
		for _, v := range r.Args(now) {
			b = appendNumber(b, v)
		}
	}
	return b
}

// packGrows returns for how long the blocks of a zone's rules last that follow each other; nothing if
// they do not grow.
func packGrows(c *stores.Counter) (b []byte) {
	if c.Grows == nil {
		return nil
	}
	b = append(b, byte(c.LastStep()))
	for _, g := range c.Grows {
		b = append(b, byte(len(g)))
		for _, d := range g {
			b = appendNumber(b, d)
		}
	}
	return b
}

// searchCalls is how many rules the script judges at most, as a part of what a rule of a
// batch may take, to find out how long a rule denies.
const searchCalls = 16

// searches returns how many rules the start of a block by a counter counts like: the script
// has to search for the end of a denial that lasts longer than the block.
func searches(c *stores.Counter) (n int) {
	for i, d := range c.Blocks {
		r := c.Rules[i]
		if longest := float64(r.Window()) * max(1, float64(r.Capacity())/float64(r.Limit())); d > 0 && float64(d) < longest {
			n += searchCalls
		}
	}
	return n
}
