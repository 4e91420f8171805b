package stores

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
)

// Counter is a set of rules that are counted under one key: those of a zone,
// of one of its overrides, or its memory of duplicates.
type Counter struct {
	// Zone is the zone's name.
	Zone string

	// Kinds is a short fingerprint of what gives the states their meaning: it
	// ends the names of the keys in Redis.
	Kinds string

	// Rules are judged in this order.
	Rules []algorithms.Rule

	// Codes are the numbers of the rules' judges in the script.
	Codes []byte

	// InFlight is how many requests of one key may be unanswered at a time;
	// 0: any number.
	InFlight int64

	// Last says that the counter has to be decided after those of other
	// stores, because it paces: a turn cannot be held until they have decided.
	Last bool

	// HoldCost keeps the cost of a request back until it is answered, instead
	// of charging it.
	HoldCost bool

	// Lease is for how many microseconds part of the limit may be charged in
	// advance, with rules that were compiled for it; 0: none is.
	Lease int64

	// Table keeps the counts in this process, and while Redis is away.
	Table tabler

	// Split compiles the rules for one of n instances that enforce them each
	// alone, n in millionths.
	Split func(n int64) []algorithms.Rule

	// Prepared is set by the store that the counter belongs to: what it derives
	// from the other fields once.
	Prepared atomic.Value
}

// tabler is a table as far as this package needs it.
type tabler interface {
	// drop clears the state of a key. Permits in use are kept.
	drop(k Key)
}

// Drop clears what this process keeps of a key. Permits in use are kept.
func (c *Counter) Drop(k Key) { c.Table.drop(k) }
