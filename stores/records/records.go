// Package records decides checks by records that a store keeps wherever it likes: the store reads
// the records of a check's keys, asks this package to decide, and writes them back, all of it in one
// transaction. So a store in a database only reads and writes, and needs no arithmetic of its
// own.
package records

import (
	"math"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Record is what a store keeps of one key of a zone. It can be encoded as JSON. The zero value
// is that of an unused key.
type Record struct {
	// Counts are the states of the zone's rules, by [stores.Counter.Kinds].
	Counts map[string]*Counts `json:"counts,omitempty"`

	// Holds is what requests hold until they are finished, by the instance that they are in.
	Holds map[string]*Hold `json:"holds,omitempty"`

	// Block is the last block of the key.
	Block stores.Block `json:"block,omitzero"`
}

// Counts are the states of rules.
type Counts struct {
	States []algorithms.State `json:"states"` // one for each rule
	Until  int64              `json:"until"`  // when all of them are unused, in microseconds
}

// Hold is what requests of one instance hold.
type Hold struct {
	Permits int64            `json:"permits,omitempty"` // how many requests hold one
	Cost    map[string]int64 `json:"cost,omitempty"`    // what they may be charged, by [stores.Counter.Kinds]
}

// Decide decides a check by the records of its zones, one each: zones of the same
// [stores.Counter.Zone] and Key have the same. now is the present in microseconds, on one clock for
// all instances. What requests hold is noted under the name of this instance. If the records cannot
// be written because others have changed them, Decide is called again with those that there are now.
func Decide(check *stores.Check, of []*Record, now int64, instance string) {
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Enforced = z.Counter.Whole()
		z.StartsBlock = z.Counter.Blocks != nil && !check.IsShadow(i) && !check.Peek
	}
	check.ResetResults()
	check.Mode, check.Now = stores.ModeShared, now
	for i := range check.Zones {
		of[i].judge(&check.Zones[i], now)
	}
	check.Conclude()
	for i := range check.Zones {
		of[i].apply(&check.Zones[i], now, check.TurnOf(i), check.Charges(i), instance)
	}
}

// Finish ends what a zone holds, and charges its key, as [stores.Store] says. It returns what the
// request holds then: the store sets Permit of the zone to it once the record is written, so that
// Finish can be called again with the record as it is after a write that conflicted.
func Finish(z *stores.ZoneCheck, r *Record, charge, now int64, instance string) (left stores.Permit) {
	if left = z.Permit; left.Taken {
		permits := z.EndedPermits()
		r.hold(z, instance, -permits, -z.HeldCost())
		left.Taken = permits == 0
	}
	if charge == 0 {
		return left
	}
	r.used(z, stores.Before, now)
	states := r.states(z)
	for i, rule := range z.Rules {
		grow(rule, states, i, now, charge)
		rule.Repair(states[i], now)
		rule.Overdraw(states[i], now, charge)
	}
	r.held(z)
	r.count(z, now)
	r.used(z, stores.After, now)
	return left
}

// Reset clears the counts and the block of a key. What requests hold remains.
func (r *Record) Reset() { r.Counts, r.Block = nil, stores.Block{} }

// Drop drops what is of no use any more, with the holds of instances that are not alive: what they
// held is free. It
// returns when the record will be unused if nobody asks again, which is at or before now if it
// is, and [math.MaxInt64] while requests hold something.
func (r *Record) Drop(now int64, alive func(instance string) bool) (until int64) {
	for kinds, c := range r.Counts {
		if c.Until <= now {
			delete(r.Counts, kinds)
		}
		until = max(until, c.Until)
	}
	if until = max(until, r.Block.Until); r.Block.Step > 0 {
		until = max(until, r.Block.Until+stores.GrowsWithin+1)
	}
	for instance := range r.Holds {
		if !alive(instance) {
			delete(r.Holds, instance)
			continue
		}
		until = math.MaxInt64
	}
	return until
}

// judge judges a zone, and charges nothing.
func (r *Record) judge(z *stores.ZoneCheck, now int64) {
	if z.Counter.Blocks != nil && !z.IgnoreBlock {
		r.Block.Until = min(r.Block.Until, now+r.Block.Span) // the clock may have been set back
		if now-r.Block.Until <= stores.GrowsWithin {
			z.Block.Step = r.Block.Step
		}
		if r.Block.Until > now {
			z.Block = r.Block
			z.DenyBlocked(now)
			return
		}
	}
	permits := r.held(z)
	z.Full = z.InFlight > 0 && permits >= z.InFlight
	z.Admits = !z.Full
	states := r.states(z)
	for i, rule := range z.Rules {
		rule.Repair(states[i], now)
		algorithms.Follow(rule, states[i], now)
		z.Results[i].Verdict = rule.Judge(states[i], now, z.Cost, z.Held)
		z.Admits = z.Admits && z.Results[i].Admit
	}
}

// held sets the cost that requests hold, and returns their permits.
func (r *Record) held(z *stores.ZoneCheck) (permits int64) {
	z.Held = 0
	for _, h := range r.Holds {
		permits += h.Permits
		z.Held += h.Cost[z.Counter.Kinds]
	}
	return permits
}

// apply applies to a zone what was decided for the whole check.
func (r *Record) apply(z *stores.ZoneCheck, now, turn int64, charges bool, instance string) {
	if z.Blocked() {
		return
	}
	r.used(z, stores.Before, now)
	if z.Charged = charges; charges {
		permit, cost := z.Holds()
		if permit {
			z.Permit = stores.Permit{Taken: true, Mode: stores.ModeShared}
			r.hold(z, instance, 1, z.HeldCost())
			z.Held += z.HeldCost()
		}
		charges = !cost
	}
	states := r.states(z)
	for i, rule := range z.Rules {
		if charges {
			grow(rule, states, i, now, z.Cost)
			rule.Charge(states[i], now, z.Cost, turn)
		}
	}
	r.count(z, now)
	r.used(z, stores.After, now)
	if b, starts := z.StartedBlock(now); starts && z.StartsBlock {
		r.Block = b
		r.Block.Started = false
		z.StartBlock(b, now)
	}
}

// count sets the numbers of a zone's results, and until when the states are used.
func (r *Record) count(z *stores.ZoneCheck, now int64) {
	states, until := r.states(z), now
	for i, rule := range z.Rules[:len(z.Results)] {
		z.Results[i].Count(rule, states[i], now, z.Held)
		until = max(until, now+z.Results[i].Reset)
	}
	r.Counts[z.Counter.Kinds].Until = until
}

// used sets what the rules have used, before or after a charge.
func (r *Record) used(z *stores.ZoneCheck, when int, now int64) {
	if !z.Counter.Notifies {
		return
	}
	for i, rule := range z.Rules[:len(z.Results)] {
		z.Results[i].SetUsed(when, rule, r.states(z)[i], now)
	}
}

// hold adds to what the requests of an instance hold.
func (r *Record) hold(z *stores.ZoneCheck, instance string, permits, cost int64) {
	h := r.Holds[instance]
	if h == nil {
		h = &Hold{Cost: make(map[string]int64)}
		if r.Holds == nil {
			r.Holds = make(map[string]*Hold)
		}
		r.Holds[instance] = h
	}
	kinds := z.Counter.Kinds
	if h.Permits += permits; h.Cost == nil {
		h.Cost = make(map[string]int64)
	}
	if h.Cost[kinds] += cost; h.Cost[kinds] == 0 {
		delete(h.Cost, kinds)
	}
	if h.Permits == 0 && len(h.Cost) == 0 {
		delete(r.Holds, instance)
	}
}

// states returns the states of a zone's rules.
func (r *Record) states(z *stores.ZoneCheck) []algorithms.State {
	c := r.Counts[z.Counter.Kinds]
	if c == nil || len(c.States) != len(z.Counter.Rules) {
		c = new(Counts)
		for _, rule := range z.Counter.Rules {
			c.States = append(c.States, make(algorithms.State, rule.Words()))
		}
		if r.Counts == nil {
			r.Counts = make(map[string]*Counts)
		}
		r.Counts[z.Counter.Kinds] = c
	}
	return c.States
}

// grow makes room in a state for a charge.
func grow(rule algorithms.Rule, states []algorithms.State, i int, now, cost int64) {
	g, ok := rule.(algorithms.Growing)
	if !ok {
		return
	}
	if n := g.Need(states[i], now, cost); n > len(states[i]) {
		longer := make(algorithms.State, n)
		g.Move(longer, states[i])
		states[i] = longer
	}
}
