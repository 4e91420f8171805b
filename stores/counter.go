package stores

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
)

// Counter is a set of rules that are counted under one key: the rules of a
// zone, of one of its overrides, or the memory of duplicate requests.
type Counter struct {
	Terms

	// Rules are evaluated in this order.
	Rules []algorithms.Rule

	// Lease is for how many microseconds part of the limit may be charged in
	// advance, with rules that were compiled for it. 0: none.
	Lease int64

	// Overrides are the counters that are in force together with this one and count in the same
	// Table, itself included, by their Override; without counters whose limits vary. They do not change
	// while one is in use.
	Overrides map[int64]*Counter

	// Base is set if the limits change from request to request: it is the counter with
	// the limits of requests that bring none, which has the same Terms.
	// Nothing that is kept for longer than a check refers to other counters without
	// a bound, because clients may choose how many there are.
	Base *Counter

	// Split compiles the rules for one of n instances that each enforce their
	// share of the limits. n is in millionths of an instance.
	Split func(n int64) []algorithms.Rule

	shares atomic.Pointer[shares]

	// Prepared is set by the store that the counter belongs to: what it derives
	// from the other fields once.
	Prepared atomic.Value
}

// Terms are what the counters of a rule set have in common, whatever limits requests bring.
type Terms struct {
	// Zone is the zone's name.
	Zone string

	// Kinds is a short fingerprint of everything that gives the states their meaning. It
	// ends the names of the keys in a shared store.
	Kinds string

	// Algorithms are those that Rules were compiled by, for a store that has functions of its own for them.
	Algorithms []algorithms.Algorithm

	// InFlight is how many requests of one key may hold a permit at a time.
	// 0: any number.
	InFlight int64

	// Last makes [Across] decide the counter after the counters of other stores,
	// because it paces: a delay cannot be held until they have decided.
	Last bool

	// HoldCost holds the cost of a request until the response, instead of
	// charging it.
	HoldCost bool

	// Estimated lowers a cost above the capacity of a rule that is enforced to it, so that no
	// request is denied for ever by its estimate.
	Estimated bool

	// OwnSlots leaves a key uncounted, and admits it, if the table is full, instead of
	// counting several keys together.
	OwnSlots bool

	// Notifies tells the stores to set Used of the results.
	Notifies bool

	// Override distinguishes the overrides of a zone, over reloads too, which count in the
	// same table. Below 2^60. 0: the zone's own rules.
	Override int64

	// Blocks are for how many microseconds a denial by each of Rules blocks the key at
	// least; 0: it does not. nil: no rule blocks.
	Blocks []int64

	// Grows are, by rule, for how many microseconds its next blocks of a key last at least that
	// follow each other, from the second on; the last stays. nil: no block grows.
	Grows [][]int64

	// Blocked are the blocks that this process knows. All counters of a zone share them. nil
	// without Blocks.
	Blocked Table

	// Table counts in this process, and while a shared store is unavailable.
	Table Table
}

// Reset clears what this process counted under a key, and its block. Permits in use
// remain.
func (c *Counter) Reset(k Key) {
	c.Table.Reset(k)
	if c.Blocked != nil {
		c.Blocked.Reset(k)
	}
}

// shares are a counter's rules for one of several instances.
type shares struct {
	of    int64 // instances, in millionths
	rules []algorithms.Rule
}

// Whole returns the counter's own limits.
func (c *Counter) Whole() Enforced { return Enforced{c.Rules, c.InFlight} }

// Share returns what Split returns, which is compiled only when n changes.
func (c *Counter) Share(n int64) []algorithms.Rule {
	if s := c.shares.Load(); s != nil && s.of == n {
		return s.rules
	}
	s := &shares{n, c.Split(n)}
	c.shares.Store(s)
	return s.rules
}

// Capacity returns the sum of the capacities of the rules: of two counters of a table, the lesser
// one would cut what is charged under the other.
func (c *Counter) Capacity() (sum float64) {
	for _, r := range c.Rules {
		sum += float64(r.Capacity())
	}
	return sum
}

// Varies says whether the limits change from request to request.
func (c *Counter) Varies() bool { return c.Base != nil }

// Table is a table of states or of blocks of the package memory, as far as other packages
// use one that belongs to a counter.
type Table interface {
	// Reset clears what the table has of a key. Permits in use remain.
	Reset(k Key)
}
