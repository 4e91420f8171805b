package redis

import (
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// ramp is how long it takes after an outage until Redis decides all keys again.
const ramp = 500 * time.Millisecond

// fallback decides without Redis. This instance then enforces its share of every
// limit, starting from its share of the state that Redis last reported. What it
// charges meanwhile becomes a debt.
type fallback struct {
	o     *Options
	conn  *conn
	debts *debts
	live  *atomic.Int64 // instances
}

func newFallback(o *Options, c *conn, live *atomic.Int64) *fallback {
	f := &fallback{o: o, conn: c, live: live}
	f.debts = &debts{conn: c, share: f.share, settled: f.settled}
	return f
}

// ramping says whether part of a node's keys are still decided without it, after an
// outage.
func (n *node) ramping(now int64) bool {
	back := n.back.Load()
	return back != 0 && now-back < ramp.Microseconds()
}

// settled says whether a key's node is used, and decides all its keys.
func (f *fallback) settled(tag stores.Key) bool {
	n := f.conn.at(tag)
	return f.conn.calls(n) && !n.ramping(f.o.Clock())
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
	elapsed := f.o.Clock() - back
	if elapsed >= ramp.Microseconds() {
		n.back.CompareAndSwap(back, 0)
		return true
	}
	for i := range check.Zones {
		if int64(check.Zones[i].Key.Lo>>44)*ramp.Microseconds() >= elapsed<<20 {
			return false
		}
	}
	return true
}

// share returns this instance's share of the counter's rules.
func (f *fallback) share(c *stores.Counter) []algorithms.Rule {
	of := f.o.ShareOf
	if of == 0 {
		of = max(1, f.live.Load()) * 1e6
	}
	return shareOf(c, of)
}

// decide decides by the counts of this process, with its share of every limit.
// unknown says that Redis may have charged the check, though it did not answer.
func (f *fallback) decide(check *stores.Check, unknown bool) {
	clock := &f.conn.at(check.Zones[0].Tag).clock
	now := clock.now()
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules = f.share(z.Counter)
		f.warm(z, now)
	}
	memory.Decide(check, clock.now)
	check.Mode = stores.ModeFallback
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Permit.Mode = stores.ModeFallback
		if _, held := z.Holds(); unknown && z.Charged && !held {
			if n := memory.TableOf(z.Counter).Snapshots(); n != nil {
				n.Forgive(z, check.Now, check.TurnOf(z))
			}
		}
	}
}

// learn records what Redis reported for a zone.
func (f *fallback) learn(z *stores.ZoneCheck, now int64) {
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil && f.o.OnFailure == FailLocal {
		n.Learn(z, now)
	}
}

// warm prepares a zone for being decided without Redis.
func (f *fallback) warm(z *stores.ZoneCheck, now int64) {
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil && n.Warm(z, now) {
		f.debts.add(z)
	}
}

// finish ends a request that was decided without Redis. What it is charged now
// is owed, too.
func (f *fallback) finish(z *stores.ZoneCheck, charge int64) {
	clock := &f.conn.at(z.Tag).clock
	if charge > 0 {
		f.warm(z, clock.now())
	}
	memory.Finish(z, clock.now, charge)
}
