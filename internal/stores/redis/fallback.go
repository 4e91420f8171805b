package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// fallback decides without Redis. This instance then enforces its share of every
// limit, starting from its share of the state that Redis last reported. What it
// charges meanwhile becomes a debt.
type fallback struct {
	o       *Options
	conn    *conn
	hands   *handovers
	permits *permits
	live    *atomic.Int64 // instances
}

func newFallback(o *Options, c *conn, p *permits, live *atomic.Int64) *fallback {
	f := &fallback{o: o, conn: c, permits: p, live: live}
	f.hands = &handovers{o: o, conn: c, share: f.share, wake: make(chan struct{}, 1)}
	return f
}

// usesRedis says whether Redis decides a check. After an outage of the node it
// decides more and more keys, in a fixed order: a key that changed several times
// would have two limits.
func (f *fallback) usesRedis(check *stores.Check) bool {
	n := f.conn.at(check.Zones[0].Tag)
	if !f.conn.calls(n) {
		return false
	}
	back := n.back.Load()
	if back == 0 || f.o.OnFailure != FailLocal {
		return true
	}
	elapsed := f.o.Clock() - back - n.holds() // since it decides the first keys
	if elapsed >= (ramp - hold).Microseconds() {
		n.back.CompareAndSwap(back, 0)
		return true
	}
	for i := range check.Zones {
		if int64(check.Zones[i].Key.Lo>>44)*(ramp-hold).Microseconds() >= elapsed<<20 {
			return false
		}
	}
	return true
}

// shareOf returns among how many instances the limits are divided, in millionths.
func (f *fallback) shareOf() int64 {
	if of := f.o.ShareOf; of != 0 {
		return of
	}
	return max(1, f.live.Load()) * 1e6
}

// share returns the rules by which this instance counts without Redis: its share of
// the counter's rules, or the whole if it decides nothing by them and only owes.
func (f *fallback) share(c *stores.Counter) []algorithms.Rule {
	if f.o.OnFailure != FailLocal {
		return c.Rules
	}
	return shareOf(c, f.shareOf())
}

// sharePermits returns this instance's share of n permits: at least one, and 0 only if
// any number may be held.
func sharePermits(n, of int64) int64 {
	if n == 0 {
		return 0
	}
	return max(1, n/of*1e6+n%of*1e6/of)
}

// decide decides by the counts of this process, with its share of every limit.
// unknown says that Redis may have charged the check, though it did not answer.
func (f *fallback) decide(check *stores.Check, unknown bool) {
	clock := &f.conn.at(check.Zones[0].Tag).clock
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules, z.InFlight = f.share(z.Counter), sharePermits(z.Counter.InFlight, f.shareOf())
		z.CutCost(z.Rules)
		z.StartsBlock = false // of the whole limit nothing is known
		f.warm(z)
	}
	f.permits.held.Decide(check, clock.now)
	check.Mode = stores.ModeFallback
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Permit.Mode = stores.ModeFallback
		if z.Permit.Taken {
			f.permits.note(z, 1, z.HeldCost())
		}
		if _, held := z.Holds(); unknown && z.Charged && !held {
			if n := memory.TableOf(z.Counter).Snapshots(); n != nil {
				n.Forgive(z, check.Now, check.TurnOf(z), func(int) int64 { return z.Cost })
			}
		}
	}
}

// learn records what Redis reported for a zone in a reply of the given time, and sets the
// zone's numbers after the decision. With replace, the call had put the snapshot back.
func (f *fallback) learn(z *stores.ZoneCheck, now, turn int64, replace bool) {
	n := memory.TableOf(z.Counter).Snapshots()
	if n == nil {
		countResults(z, now, turn)
		return
	}
	at := memory.Instant{Local: f.o.Clock(), Shared: now, Tolerance: f.hands.tolerance()}
	n.Learn(z, at, replace, func() { countResults(z, now, turn) })
	f.hands.learns(z)
}

// warm prepares a zone for being decided without Redis.
func (f *fallback) warm(z *stores.ZoneCheck) {
	now := f.hands.now(z.Tag)
	memory.BlocksOf(z.Counter).Follow(z.Key, now)
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil && n.Warm(z, now) {
		f.hands.add(z)
		f.hands.learns(z)
	}
}

// finish ends a request that was decided without Redis. What it is charged now
// is owed, too.
func (f *fallback) finish(z *stores.ZoneCheck, charge int64) {
	clock, taken := &f.conn.at(z.Tag).clock, z.Permit.Taken
	if charge > 0 {
		f.warm(z)
	}
	f.permits.held.Finish(z, clock.now, charge)
	if permits := z.EndedPermits(charge); taken && (permits != 0 || z.HeldCost() != 0) {
		f.permits.note(z, -permits, -z.HeldCost())
	}
}

// countOnly charges in this process what may or may not have been charged in Redis: it is made
// there at most once.
func (f *fallback) countOnly(z *stores.ZoneCheck, charge int64) { f.settle(z, charge, true) }

// settle charges a request that Redis has decided, and that Redis could not charge
// after the response. The charge counts in this process and is owed to Redis, unless
// it is unknown whether Redis made it: it is made once. A permit remains.
func (f *fallback) settle(z *stores.ZoneCheck, charge int64, unknown bool) {
	local := *z // whose results stay those of the decision
	local.Permit = stores.Permit{}
	local.Rules = f.share(z.Counter)
	local.Results = make([]stores.Result, len(local.Rules))
	f.finish(&local, charge)
	n := memory.TableOf(z.Counter).Snapshots()
	if unknown && n != nil {
		n.Forgive(&local, f.conn.at(z.Tag).clock.now(), 0, func(rule int) int64 { return local.Results[rule].Owed })
	}
	if unknown || n == nil {
		f.conn.observer.get().Uncharged(z.Counter.Zone, charge)
	}
}
