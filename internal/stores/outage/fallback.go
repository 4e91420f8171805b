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
	f.Hands = &Handovers{taker: taker{o, redis, f.rules}}
	return f
}

// Share returns the limits that this instance enforces without Redis.
func (f *Fallback) Share(c *stores.Counter) stores.Enforced {
	return stores.Enforced{Rules: f.rules(c), InFlight: f.SharePermits(c.InFlight)}
}

// rules returns the rules by which this instance counts without Redis: its share of
// the counter's rules, or the whole if it decides nothing by them and only owes.
func (f *Fallback) rules(c *stores.Counter) []algorithms.Rule {
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
// err is why Redis did not decide; nil: it was not asked. Redis may have charged the check, though it did
// not answer.
func (f *Fallback) Decide(check *stores.Check, err error) {
	now, unknown := f.redis.Now(check.Zones[0].Tag), err != nil && f.redis.MayHaveRun(err)
	var many [8]bool
	room := many[:0]
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Enforced = f.Share(z.Counter)
		z.CutCost(z.Rules)
		z.StartsBlock = false // of the whole limit nothing is known
		room = append(room, f.warm(z, now))
	}
	f.Held.Decide(check, f.clock(now))
	check.Mode = stores.ModeFallback
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Permit.Mode = stores.ModeFallback
		if z.Permit.Taken {
			f.redis.Note(z, 1, z.HeldCost())
		}
		if _, held := z.Holds(); !z.Charged || held {
			continue
		}
		if unknown {
			zones := len(check.Zones)
			f.await(z, z.Cost, check.Now, room[i], err, func(of Fate) bool { return of.charged(i, zones) })
			continue
		}
		f.owe(z, z.Cost, check.Now, room[i])
	}
}

// await follows a charge that failed with err, whose reply may still come. The key owes it once it is certain that
// Redis has not made it. If that remains unknown, it is reported.
func (f *Fallback) await(z *stores.ZoneCheck, charge, at int64, room bool, err error, made func(Fate) bool) {
	late := &stores.ZoneCheck{Counter: z.Counter, Subject: z.Subject, Enforced: stores.Enforced{Rules: z.Rules}, NoRoom: z.NoRoom}
	f.redis.Await(err, func(of Fate) {
		switch {
		case !of.Known && len(late.Rules) > 0:
			f.Hands.giveUp(late.Counter.Zone, stores.UnchargedUnknown, charge)
		case of.Known && !made(of):
			f.owe(late, charge, at, room)
		}
	})
}

// owe notes that a key owes what it was charged at a time, or reports it if there is no room for the debt or
// for the key's own count: what several keys share is not told of one of them. A fingerprint without a slot
// is not counted at all.
func (f *Fallback) owe(z *stores.ZoneCheck, charge, at int64, room bool) {
	n, noted := memory.TableOf(z.Counter).Snapshots(), memory.NotedNoRoom
	if room && !z.Overflowed {
		noted = n.Owe(z, charge, at, f.o.Clock())
	}
	switch {
	case noted == memory.NotedNoRoom && (len(z.Rules) == 0 || z.Counter.OwnSlots):
	case n == nil:
		f.Hands.giveUp(z.Counter.Zone, stores.UnchargedUnsupported, charge)
	default:
		f.Hands.noted(z, noted, charge)
	}
}

// clock returns the clock of a node, as it is estimated now.
func (f *Fallback) clock(now memory.Instant) func() int64 {
	return func() int64 { return now.At(f.o.Clock()).Shared }
}

// Learn records what Redis reported for a zone in a reply of the given time. It calls charge once,
// which sets the zone's numbers after the decision. With replace, the call had put the snapshot
// back.
func (f *Fallback) Learn(z *stores.ZoneCheck, at memory.Instant, replace bool, charge func()) {
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil {
		f.Hands.giveUp(z.Counter.Zone, stores.UnchargedUnsupported, n.Learn(z, at, replace, charge))
	} else {
		charge()
	}
}

// LearnBlock remembers the block that Redis reported for a zone's key.
func (f *Fallback) LearnBlock(z *stores.ZoneCheck, at memory.Instant) {
	memory.BlocksOf(z.Counter).Set(z.Key, memory.KnownBlock{
		Until: z.Block.Until, Span: z.Block.Span, Offset: at.Shared - at.Local, Asked: at.Local, Rule: z.Block.Rule, Step: z.Block.Step,
	}, at.Shared)
}

// warm prepares a zone for being decided without Redis. It reports whether there is room for what the
// key is charged from now on.
func (f *Fallback) warm(z *stores.ZoneCheck, now memory.Instant) (room bool) {
	memory.BlocksOf(z.Counter).Follow(z.Key, now)
	n := memory.TableOf(z.Counter).Snapshots()
	return n != nil && n.Warm(z, now)
}

// Finish ends a request that was decided without Redis. What it is charged now
// is owed, too.
func (f *Fallback) Finish(z *stores.ZoneCheck, charge int64) {
	if at, room := f.finish(z, charge); charge > 0 {
		f.owe(z, charge, at, room)
	}
}

// finish is Finish without what is owed: it returns when the charge was made, and whether there is room
// for it.
func (f *Fallback) finish(z *stores.ZoneCheck, charge int64) (at int64, room bool) {
	now, taken := f.redis.Now(z.Tag), z.Permit.Taken
	if charge > 0 {
		room = f.warm(z, now)
	}
	f.Held.Finish(z, f.clock(now), charge)
	if permits := z.EndedPermits(); taken && (permits != 0 || z.HeldCost() != 0) {
		f.redis.Note(z, -permits, -z.HeldCost())
	}
	return now.Shared, room
}

// Settle charges a request that Redis has decided, and that Redis could not charge
// after the response because of err. It charges in this process, and records a debt unless Redis may
// already have applied the charge. A permit remains.
func (f *Fallback) Settle(z *stores.ZoneCheck, charge int64, err error) {
	local := *z // whose results stay those of the decision
	local.Permit = stores.Permit{}
	local.Rules = f.rules(z.Counter)
	local.Results = make([]stores.Result, len(local.Rules))
	at, room := f.finish(&local, charge)
	if !f.redis.MayHaveRun(err) {
		f.owe(&local, charge, at, room)
		return
	}
	f.await(&local, charge, at, room, err, func(of Fate) bool { return of.Ran })
}
