// Package outage decides without Redis, by this instance's share of every limit and what Redis
// last reported. What it charges meanwhile is a debt, which is handed over to Redis afterwards,
// with what Redis has lost of what this instance knows.
package outage

import (
	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// Fallback decides without Redis. This instance then enforces its share of every
// limit, starting from its share of the state that Redis last reported. What it
// charges meanwhile becomes a debt.
type Fallback struct {
	// Hands hand over the debts.
	Hands *Handovers

	// Held is what requests hold.
	Held *memory.Permits

	o     Options
	redis Redis
}

// New returns a fallback for a Redis.
func New(o Options, redis Redis, held *memory.Permits) *Fallback {
	f := &Fallback{o: o, redis: redis, Held: held}
	f.Hands = &Handovers{o: o, redis: redis, share: f.Share, Wake: make(chan struct{}, 1)}
	return f
}

// Share returns the rules by which this instance counts without Redis: its share of
// the counter's rules, or the whole if it decides nothing by them and only owes.
func (f *Fallback) Share(c *stores.Counter) []algorithms.Rule {
	if !f.o.Local {
		return c.Rules
	}
	return c.Share(f.o.ShareOf())
}

// SharePermits returns this instance's share of n permits: at least one, and 0 only if
// any number may be held.
func (f *Fallback) SharePermits(n int64) int64 {
	if n == 0 {
		return 0
	}
	of := f.o.ShareOf()
	return max(1, n/of*1e6+n%of*1e6/of)
}

// Decide decides by the counts of this process, with its share of every limit.
// err is why Redis did not decide, nil if it was not asked: it may have charged the check, though it
// did not answer.
func (f *Fallback) Decide(check *stores.Check, err error) {
	now, unknown := f.redis.Now(check.Zones[0].Tag), err != nil && f.redis.MayHaveRun(err)
	var room [8]bool
	owes := room[:0]
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules, z.InFlight = f.Share(z.Counter), f.SharePermits(z.Counter.InFlight)
		z.CutCost(z.Rules)
		z.StartsBlock = false // of the whole limit nothing is known
		owes = append(owes, f.warm(z, now))
	}
	f.Held.Decide(check, f.clock(now))
	check.Mode = stores.ModeFallback
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Permit.Mode = stores.ModeFallback
		if z.Permit.Taken {
			f.redis.Note(z, 1, z.HeldCost())
		}
		n := memory.TableOf(z.Counter).Snapshots()
		if _, held := z.Holds(); !z.Charged || held {
			continue
		}
		if unknown && n != nil {
			cost, zones := z.Cost, len(check.Zones)
			f.await(z, owed{cost, owes[i], check.Now, check.TurnOf(z), func(int) int64 { return cost }}, err, func(of Fate) bool {
				return of.charged(i, zones)
			})
			continue
		}
		if n != nil {
			n.Owe(z, check.Now)
		}
		f.uncharged(z, z.Cost, owes[i])
	}
}

// owed is what a zone's key was charged here, and Redis may have charged too.
type owed struct {
	charge    int64
	owes      bool // whether there is room for the debt
	now, turn int64
	charged   func(rule int) int64
}

// await has a key owe a charge that failed with err only if Redis has certainly not made it. If that
// remains unknown, it is reported.
func (f *Fallback) await(z *stores.ZoneCheck, o owed, err error, made func(Fate) bool) {
	n, late := memory.TableOf(z.Counter).Snapshots(), &stores.ZoneCheck{
		Counter: z.Counter, Key: z.Key, Tag: z.Tag, Rules: z.Rules, Overflowed: z.Overflowed,
	}
	n.Wait(z.Key)
	f.redis.Await(err, func(of Fate) {
		if of.Known && !made(of) {
			if n.Refuse(late, o.now) {
				f.Hands.add(late)
				f.uncharged(late, o.charge, o.owes)
			}
			return
		}
		if n.Forgive(late, o.now, o.turn, o.charged); !of.Known {
			f.redis.Uncharged(late.Counter.Zone, o.charge)
		}
	})
}

// uncharged reports a charge that is not owed to Redis: there is no room for the debt, or for the
// key's own count. What several keys share is not told of one of them, and a fingerprint without a
// slot is not counted at all.
func (f *Fallback) uncharged(z *stores.ZoneCheck, charge int64, owes bool) {
	if (!owes || z.Overflowed) && len(z.Rules) > 0 && !z.Counter.OwnSlots {
		f.redis.Uncharged(z.Counter.Zone, charge)
	}
}

// clock returns the clock of a node, as it is estimated now.
func (f *Fallback) clock(now memory.Instant) func() int64 {
	return func() int64 { return f.o.Clock() + now.Shared - now.Local }
}

// Learn records what Redis reported for a zone in a reply of the given time. It calls charge once,
// which sets the zone's numbers after the decision. With replace, the call had put the snapshot
// back.
func (f *Fallback) Learn(z *stores.ZoneCheck, at memory.Instant, replace bool, charge func()) {
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil {
		n.Learn(z, at, replace, charge)
	} else {
		charge()
	}
}

// LearnBlock remembers the block that Redis reported for a zone's key.
func (f *Fallback) LearnBlock(z *stores.ZoneCheck, at memory.Instant) {
	memory.BlocksOf(z.Counter).Set(z.Key, memory.KnownBlock{
		Until: z.Block.Until, Span: z.Block.Span, Offset: at.Shared - at.Local, Rule: z.Block.Rule, Step: z.Block.Step,
	}, at.Shared)
}

// warm prepares a zone for being decided without Redis. It reports whether the key owes what it is
// charged from now on.
func (f *Fallback) warm(z *stores.ZoneCheck, now memory.Instant) bool {
	memory.BlocksOf(z.Counter).Follow(z.Key, now)
	n := memory.TableOf(z.Counter).Snapshots()
	if n == nil {
		return false
	}
	starts, owes := n.Warm(z, now)
	if starts {
		f.Hands.add(z)
	}
	return owes
}

// Finish ends a request that was decided without Redis. What it is charged now
// is owed, too.
func (f *Fallback) Finish(z *stores.ZoneCheck, charge int64) {
	if owes := f.finish(z, charge); charge > 0 {
		f.uncharged(z, charge, owes)
	}
}

// finish is Finish without the report of a charge that is not owed.
func (f *Fallback) finish(z *stores.ZoneCheck, charge int64) (owes bool) {
	now, taken := f.redis.Now(z.Tag), z.Permit.Taken
	z.Overflowed = false
	if charge > 0 {
		owes = f.warm(z, now)
	}
	f.Held.Finish(z, f.clock(now), charge)
	if n := memory.TableOf(z.Counter).Snapshots(); charge > 0 && n != nil {
		n.Owe(z, now.Shared)
	}
	if permits := z.EndedPermits(charge); taken && (permits != 0 || z.HeldCost() != 0) {
		f.redis.Note(z, -permits, -z.HeldCost())
	}
	return owes
}

// Settle charges a request that Redis has decided, and that Redis could not charge
// after the response because of err. It charges in this process, and records a debt unless Redis may
// already have applied the charge. A permit remains.
func (f *Fallback) Settle(z *stores.ZoneCheck, charge int64, err error) {
	local := *z // whose results stay those of the decision
	local.Permit = stores.Permit{}
	local.Rules = f.Share(z.Counter)
	local.Results = make([]stores.Result, len(local.Rules))
	owes := f.finish(&local, charge)
	if !f.redis.MayHaveRun(err) {
		f.uncharged(&local, charge, owes)
		return
	}
	if memory.TableOf(z.Counter).Snapshots() == nil {
		f.redis.Uncharged(z.Counter.Zone, charge)
		return
	}
	made := func(rule int) int64 { return local.Results[rule].Owed }
	f.await(&local, owed{charge, owes, f.redis.Now(z.Tag).Shared, 0, made}, err, func(of Fate) bool { return of.Ran })
}
