package redis

import (
	"slices"
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// A denial stays valid until its retry time, whatever other requests are charged
// meanwhile. So what Redis last said of the keys of a check that was denied is
// remembered, and judges further checks of these keys, of whatever cost: one that is
// certainly denied needs no call. The verdict is exact as long as Redis keeps its
// memory. So are zone, rule, wait and numbers, but for what other instances were
// charged since: each reply for such a key replaces what was remembered of it.
//
// What Redis said is remembered for at most a second, and not after the connections
// have changed, a call has failed, keys have been reset or the rules have been
// replaced. A permit may be released at any moment, so that nothing is remembered of a zone
// with permits or held costs; nor of a zone whose limits come from requests: what was
// used may drain faster under another request's limit.
const (
	denialSlots = 4096
	denialLasts = 1_000_000 // microseconds
)

// denials is the denial cache. Of two keys in one slot the later one is
// remembered.
type denials struct {
	conn    *conn
	slots   [denialSlots]atomic.Pointer[denial]
	cleared atomic.Uint64
}

// denial is what Redis said of a zone of a check that was denied, or of a later one.
type denial struct {
	counter uint64 // its serial number: the counter itself may be gone
	key     stores.Key
	decided int64 // the cost that was decided and not charged; -1: it was charged
	epoch   uint64
	sent    int64 // when Redis was called, on the local clock
	now     int64 // on Redis' clock
	block   stores.Block
	states  []algorithms.State
	rules   []algorithms.Rule // that read them
}

// clear forgets all denials.
func (d *denials) clear() { d.cleared.Add(1) }

// epoch changes whenever denials by a node become invalid.
func (d *denials) epoch(n *node) uint64 {
	if d == nil {
		return 0
	}
	return d.cleared.Load() + n.epoch()
}

func (d *denials) slot(z *stores.ZoneCheck) *atomic.Pointer[denial] {
	return &d.slots[cacheSlot(z, denialSlots)]
}

// is says whether a denial is of a zone's key.
func (n *denial) is(z *stores.ZoneCheck) bool {
	return n != nil && n.key == z.Key && n.counter == prepare(z.Counter).serial
}

// find returns what is remembered of a zone, or nil.
func (d *denials) find(z *stores.ZoneCheck, epoch uint64, now int64) *denial {
	n := d.slot(z).Load()
	if !n.is(z) || n.epoch != epoch {
		return nil
	}
	age := now - n.sent
	if age < 0 || age >= denialLasts {
		return nil
	}
	if n.block.Until > 0 && n.block.Until <= n.now+age { // the next check may start another block
		return nil
	}
	return n
}

// answer denies a check without a call if what is remembered of its zones says so.
func (d *denials) answer(check *stores.Check, now int64) bool {
	if d == nil || check.Peek {
		return false
	}
	epoch, certain := d.epoch(d.conn.at(check.Zones[0].Tag)), false
	var room [4]*denial
	found := room[:0]
	for i := range check.Zones {
		z := &check.Zones[i]
		n := d.find(z, epoch, now)
		if n == nil || !remembers(z) {
			return false
		}
		found = append(found, n)
	}
	check.Now = 0
	for i, n := range found {
		z, at := &check.Zones[i], n.now+now-n.sent
		if !n.judge(z, at) {
			return false
		}
		certain = certain || !z.Shadow && !z.Admits
		check.Now = max(check.Now, at)
	}
	if certain {
		check.Mode, check.Turn, check.Admitted = stores.ModeShared, 0, false
	}
	return certain
}

// judge sets a zone's results by what is remembered, at a time of Redis. It returns false if that does
// not say them.
func (n *denial) judge(z *stores.ZoneCheck, at int64) bool {
	z.Rules = z.Counter.Rules
	z.Admits, z.Charged, z.Full, z.Overflowed, z.Permit = true, false, false, false, stores.Permit{}
	z.Results = slices.Grow(z.Results[:0], len(z.Rules))[:len(z.Rules)]
	clear(z.Results)
	if z.Block = n.block; z.Block.Until > 0 {
		z.DenyBlocked(at)
		return true
	}
	for i, r := range n.rules {
		s, res := n.states[i], &z.Results[i]
		if _, grows := z.Rules[i].(algorithms.Growing); grows {
			if p, ok := r.(algorithms.Partial); !ok || !p.Knows(s, at, z.Cost, n.decided) {
				return false
			}
		}
		res.Verdict = r.Judge(s, at, z.Cost, 0)
		res.Count(r, s, at, 0)
		z.Admits = z.Admits && res.Admit
	}
	return true
}

// learn remembers what Redis said of the zones of a check that was denied. What is remembered of a key
// follows each reply. sent is when Redis was called, on the local clock.
func (d *denials) learn(check *stores.Check, sent int64, epoch uint64) {
	if d == nil || check.Peek {
		return
	}
	for i := range check.Zones {
		z := &check.Zones[i]
		slot := d.slot(z)
		was := slot.Load()
		known := was.is(z)
		if known && was.epoch == epoch && was.now > check.Now || !known && check.Admitted {
			continue
		}
		if !remembers(z) || z.Held > 0 || mayBlock(z) {
			d.forget(z)
			continue
		}
		n := &denial{counter: prepare(z.Counter).serial, key: z.Key, decided: z.Cost, epoch: epoch, sent: sent, now: check.Now, block: z.Block}
		if n.block.Started = false; z.Charged {
			n.decided = -1
		}
		for r := range z.Results {
			n.states = append(n.states, slices.Clone(z.Results[r].State))
			n.rules = append(n.rules, z.Results[r].Rule)
		}
		slot.Store(n)
	}
}

// forget forgets what is remembered of a zone's key, because Redis is charged and says nothing of it.
func (d *denials) forget(z *stores.ZoneCheck) {
	if d == nil {
		return
	}
	if slot := d.slot(z); slot.Load().is(z) {
		slot.Store(nil)
	}
}

// remembers says whether anything is remembered of a zone.
func remembers(z *stores.ZoneCheck) bool {
	permit, _ := z.Holds()
	return !permit && !z.Counter.Varies()
}

// mayBlock reports whether the next check of a zone may start a block, which a denial that is
// remembered would put off.
func mayBlock(z *stores.ZoneCheck) bool {
	return z.Counter.Blocks != nil && !z.Shadow && z.Block.Until == 0
}
