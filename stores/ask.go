// Package stores keeps the counts: in this process ([Local]), or shared by all
// instances in Redis ([Shared]), which falls back to this process while Redis
// is away. A store takes an [Ask] and answers it at one instant. It knows no
// HTTP.
package stores

import (
	"context"

	"github.com/dianalimiter/diana/algorithms"
)

// Store answers asks.
type Store interface {
	// Decide judges all items of the ask at one instant and charges them if
	// all that are no shadows admit. It always answers: Ask.Mode says how.
	Decide(ctx context.Context, a *Ask)

	// Finish gives back the place that an item held, and takes charge now,
	// whatever a verdict would be. It does nothing for an item without a
	// place that owes nothing.
	Finish(ctx context.Context, it *Item, charge int64)
}

// Mode says who decided.
type Mode uint8

// Who decided an ask.
const (
	ModeLocal  Mode = iota // the counts of this process are the counts
	ModeShared             // Redis
	ModeAlone              // this process alone, with its share, because Redis is away
	ModeAllow              // nobody: Redis is away and everything passes
	ModeDeny               // nobody: Redis is away and nothing passes
)

// String is the mode as it is shown.
func (m Mode) String() string { return [...]string{"local", "shared", "alone", "allow", "deny"}[m] }

// Ask is what one request wants: to be counted under every item, or none.
type Ask struct {
	// Items are the zones that apply, in the order in which they are written.
	Items []Item

	// Look judges the items and charges nothing.
	Look bool

	// Brief says that nobody reads the results' Remaining and Reset: a store may
	// leave them 0.
	Brief bool

	// Now is the instant of the decision in microseconds, on the store's clock.
	Now int64

	// Admitted says whether every item that is no shadow admits.
	Admitted bool

	// Turn is how many microseconds an admitted request has to wait.
	Turn int64

	// Mode says who decided.
	Mode Mode
}

// Item is one zone of an ask, with the answer.
type Item struct {
	Counter *Counter // what counts
	Key     Key      // whom it counts

	// Tag is the key that decides the slot in a Redis Cluster: the same as
	// Key, but for what is counted beside a zone's key, such as duplicates.
	Tag Key

	// Group is what the keys of one network have in common.
	Group uint32

	// Cost is what the request takes from every rule, at least 1.
	Cost int64

	// Shadow judges and charges the item on its own, after the others.
	Shadow bool

	// Reserve holds the cost, as a zone with count_status does, though the
	// counter does not ask for it.
	Reserve bool

	// Rules are those that were enforced: the counter's, or its share of them.
	Rules []algorithms.Rule

	// Results are what the rules say, one each.
	Results []Result

	// Admits says whether the item's own rules and places admit.
	Admits bool

	// Charged says that the item was charged, or holds its place.
	Charged bool

	// Full says that as many requests are in flight as may be.
	Full bool

	// Crowded says that the table is full, and that the item was charged to a
	// counter which its key shares with others.
	Crowded bool

	hold hold
	held int64 // cost held by others in Redis

	// lease is set by the store: a request for cost in advance.
	lease leaseRequest
}

// leaseRequest asks for cost in advance.
type leaseRequest struct {
	want    int64 // beside the item's own cost, to be spent later
	granted int64 // of that; -1: Redis did not say
}

// Result is what one rule says.
type Result struct {
	algorithms.Verdict

	// Remaining is what could still pass after this decision.
	Remaining int64

	// Reset is after how many microseconds the rule is as if unused.
	Reset int64

	// What Redis said, and the rule to read it by.
	state algorithms.State
	rule  algorithms.Rule
}

// hold is where a place is kept.
type hold struct {
	id       uint64
	mode     Mode
	overflow bool
	taken    bool
	lease    int64 // the end of the lease that the cost was taken from
}

// holds says whether the item takes a place until Finish, and whether that
// place holds the cost.
func (it *Item) holds() (place, cost bool) {
	cost = it.Counter.HoldCost || it.Reserve
	return cost || it.Counter.InFlight > 0, cost
}

// keepsPlace says that a charge ends only the cost that was held for the sake
// of other stores, and that the request's place stays.
func (it *Item) keepsPlace(charge int64) bool {
	return it.Reserve && charge > 0 && it.Counter.InFlight > 0
}

// settle sums up what the items say.
func (a *Ask) settle() {
	a.Admitted, a.Turn = true, 0
	for i := range a.Items {
		if it := &a.Items[i]; !it.Shadow {
			a.Admitted = a.Admitted && it.Admits
			for r := range it.Results {
				a.Turn = max(a.Turn, it.Results[r].Delay)
			}
		}
	}
}

// turn is how long the item's request waits before it is charged: shadows go
// by their own queues.
func (a *Ask) turn(it *Item) int64 {
	if !it.Shadow {
		return a.Turn
	}
	var t int64
	for r := range it.Results {
		t = max(t, it.Results[r].Delay)
	}
	return t
}

// room gives every item space for its results.
func (a *Ask) room() {
	for i := range a.Items {
		it := &a.Items[i]
		it.Admits, it.Charged, it.Full, it.Crowded = true, false, false, false
		it.hold = hold{}
		if n := len(it.Rules); cap(it.Results) >= n {
			it.Results = it.Results[:n]
			for r := range it.Results {
				res := &it.Results[r]
				*res = Result{}
			}
		} else {
			it.Results = make([]Result, n)
		}
	}
}
