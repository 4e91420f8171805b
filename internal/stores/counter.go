package stores

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
)

// Counter is a set of rules that are counted under one key: the rules of a
// zone, of one of its overrides, or the memory of duplicate requests.
type Counter struct {
	// Zone is the zone's name.
	Zone string

	// Kinds is a short fingerprint of what gives the states their meaning. It
	// ends the names of the keys in Redis.
	Kinds string

	// Rules are evaluated in this order.
	Rules []algorithms.Rule

	// Codes are the numbers of the rules' functions in the script.
	Codes []byte

	// InFlight is how many requests of one key may hold a permit at a time.
	// 0: any number.
	InFlight int64

	// Last makes [Across] decide the counter after those of other stores,
	// because it paces: a delay cannot be held until they have decided.
	Last bool

	// HoldCost holds the cost of a request until the response, instead of
	// charging it.
	HoldCost bool

	// Lease is for how many microseconds part of the limit may be charged in
	// advance, with rules that were compiled for it. 0: none.
	Lease int64

	// Table counts in this process, and while Redis is unavailable.
	Table Table

	// Split compiles the rules for one of n instances that each enforce their
	// share of the limits. n is in millionths of an instance.
	Split func(n int64) []algorithms.Rule

	// Prepared is set by the store that the counter belongs to: what it derives
	// from the other fields once.
	Prepared atomic.Value
}

// Reset clears what this process counted under a key. Permits in use remain.
func (c *Counter) Reset(k Key) { c.Table.Reset(k) }

// Table is a table of the package memory, as far as other packages use one that
// belongs to a counter.
type Table interface {
	// Reset clears the state of a key. Permits in use remain.
	Reset(k Key)
}
