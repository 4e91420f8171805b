package metrics

import "sync/atomic"

// Outcome is the decision of a zone.
type Outcome uint8

// Decisions of zones.
const (
	Allowed Outcome = iota
	Denied
	Delayed
	Skipped
	ShadowDenied
	ShadowDelayed
	DeniedElsewhere
	Left
	numOutcomes
)

// Notability orders outcomes for a log that has one of those of a request's zones, of all its handlers; 0: it has none of
// them.
func (o Outcome) Notability() int {
	return [numOutcomes]int{ShadowDelayed: 1, ShadowDenied: 2, Delayed: 3, Denied: 4, Left: 5}[o]
}

// What is counted in addition to decisions.
const (
	Near        = numOutcomes + iota // allowed, and little of a limit is left
	Fallback                         // decided without the zone's store
	BadCost                          // a cost that is not an integer of at least 1
	BadLimit                         // a request that brought no limit, or a rejected one
	UnknownCost                      // a response that did not tell its cost
	BadPriority                      // a priority that is none of its classes
	Settled                          // cost that responses told
	numCounts
)

// String returns the outcome as metrics and placeholders show it.
func (o Outcome) String() string {
	return [...]string{"allowed", "denied", "delayed", "skipped", "shadow_denied", "shadow_delayed", "denied_elsewhere", "left"}[o]
}

// Counters count the decisions of a zone by outcome, and what is rare. The zero value is ready
// for use.
type Counters struct {
	// Sharded, so that processors do not contend for one cache line.
	shards [counterShards]counterShard

	shown [numOutcomes]atomic.Uint64 // see Shown

	Overflows atomic.Uint64 // charges to counters that several keys share
	Unblocked atomic.Uint64 // denials that started no block, because a table is full
}

// Destruct implements caddy.Destructor.
func (*Counters) Destruct() error { return nil }

const counterShards = 16

type counterShard struct {
	counts [numCounts]atomic.Uint64
	_      [128 - 8*numCounts]byte // pads to two cache lines, which are fetched together
}

// Rule counts the denials by one rule of a zone, and the blocks that it started. nil counts
// nothing.
type Rule struct {
	denied         [numCauses]atomic.Uint64
	shadow, blocks atomic.Uint64

	// Blocks is set if the rule may start a block: it has a count before the first, in
	// which a Prometheus would otherwise see no increase.
	Blocks atomic.Bool
}

// Destruct implements caddy.Destructor.
func (*Rule) Destruct() error { return nil }

// CountDenied counts a denial.
func (r *Rule) CountDenied(why Cause) {
	if r != nil {
		r.denied[why].Add(1)
	}
}

// CountShadowDenied counts a denial that a zone in shadow only reports.
func (r *Rule) CountShadowDenied() {
	if r != nil {
		r.shadow.Add(1)
	}
}

// CountBlock counts a block.
func (r *Rule) CountBlock() {
	if r != nil {
		r.blocks.Add(1)
	}
}

// Denied returns the numbers of denials, and of denials that were only reported.
func (r *Rule) Denied() (denied, shadow uint64) {
	for i := range r.denied {
		denied += r.denied[i].Load()
	}
	return denied, r.shadow.Load()
}

// Count counts a decision, or a request, in a shard, as [Zone.Count] does.
func (c *Counters) Count(o Outcome, shard uint32) { c.shards[shard%counterShards].counts[o].Add(1) }

// Move counts a request with another outcome than the one it was counted with before.
func (c *Counters) Move(before, after Outcome, shard uint32) {
	c.shards[shard%counterShards].counts[before].Add(^uint64(0))
	c.Count(after, shard)
}

// Requests are numbers of requests, each counted once, as the admin API answers them.
type Requests struct {
	Allowed uint64 `json:"allowed"` // at once
	Denied  uint64 `json:"denied"`  // by any zone
	Delayed uint64 `json:"delayed"` // allowed after they waited
	Left    uint64 `json:"left"`    // whose clients left while they waited
}

// Requests returns the numbers of requests so far.
func (c *Counters) Requests() Requests {
	return Requests{c.Sum(Allowed), c.Sum(Denied), c.Sum(Delayed), c.Sum(Left)}
}

// Sum returns the number of decisions with an outcome.
func (c *Counters) Sum(o Outcome) (sum uint64) {
	for i := range c.shards {
		sum += c.shards[i].counts[o].Load()
	}
	return sum
}

// Shown returns what Prometheus is shown of an outcome, which never decreases: Prometheus would take that for a
// restart, and count all decisions again. Those that have moved to another outcome are subtracted from those that follow.
func (c *Counters) Shown(o Outcome) uint64 {
	for {
		last, now := c.shown[o].Load(), c.Sum(o)
		if int64(now-last) <= 0 { // also below 0: one that moves while the shards are added up may be missing
			return last
		}
		if c.shown[o].CompareAndSwap(last, now) {
			return now
		}
	}
}

// Decisions returns the numbers of decisions by outcome.
func (c *Counters) Decisions() map[string]uint64 {
	decisions := make(map[string]uint64, numOutcomes)
	for o := range numOutcomes {
		decisions[o.String()] = c.Sum(o)
	}
	return decisions
}
