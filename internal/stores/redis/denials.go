package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
)

// A denial stays valid until its retry time, whatever other requests are charged
// meanwhile. So a request with at least the cost of a request that was denied
// recently is denied without a call. The verdict is exact as long as Redis keeps
// its memory; Remaining and Reset may be outdated.
//
// A denial is remembered for at most a second, and not after the connections
// have changed, a call has failed, keys have been reset or the rules have been
// replaced. A permit may be released at any moment, so that no denial of a zone
// with permits is remembered; nor is one of a zone whose limits come from requests: what was
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

// denial is the result of a zone of a check that was denied.
type denial struct {
	counter uint64 // its serial number: the counter itself may be gone
	key     stores.Key
	cost    int64
	epoch   uint64
	sent    int64 // when Redis was called, on the local clock
	now     int64 // on Redis' clock
	until   int64 // when the last denying rule would admit; 0: the zone admits
	block   stores.Block
	results []stores.Result
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

// find returns the denial of a zone, or nil.
func (d *denials) find(z *stores.ZoneCheck, epoch uint64, now int64) *denial {
	n := d.slot(z).Load()
	if n == nil || n.key != z.Key || n.counter != prepare(z.Counter).serial || n.epoch != epoch || z.Cost < n.cost {
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

// applies says whether denials of the check's zones are remembered.
func (d *denials) applies(check *stores.Check) bool {
	if d == nil || check.Peek {
		return false
	}
	for i := range check.Zones {
		if permit, _ := check.Zones[i].Holds(); permit {
			return false
		}
		if check.Zones[i].Counter.Varies() {
			return false
		}
	}
	return true
}

// answer denies a check without a call if one of its zones certainly denies, and
// the results of the others are known.
func (d *denials) answer(check *stores.Check, now int64) bool {
	if !d.applies(check) {
		return false
	}
	epoch, certain := d.epoch(d.conn.at(check.Zones[0].Tag)), false
	var room [4]*denial
	found := room[:0]
	for i := range check.Zones {
		z := &check.Zones[i]
		n := d.find(z, epoch, now)
		if n == nil {
			return false
		}
		certain = certain || !z.Shadow && n.until > now
		found = append(found, n)
	}
	if !certain {
		return false
	}
	check.Mode, check.Turn, check.Admitted = stores.ModeShared, 0, false
	for i, n := range found {
		recall(&check.Zones[i], n, now)
		check.Now = n.now + now - n.sent
	}
	return true
}

// recall sets a zone's results from a denial, less the time that has passed.
func recall(z *stores.ZoneCheck, n *denial, now int64) {
	z.Rules = z.Counter.Rules
	z.Admits, z.Charged, z.Full, z.Overflowed, z.Permit = true, false, false, false, stores.Permit{}
	z.Results = append(z.Results[:0], n.results...)
	passed := now - n.sent
	if z.Block = n.block; z.Block.Until > 0 {
		z.DenyBlocked(n.now + passed)
		return
	}
	for i := range z.Results {
		r := &z.Results[i]
		r.Pass(passed)
		switch {
		case z.Cost > z.Rules[i].Capacity():
			r.Verdict = algorithms.Verdict{Retry: algorithms.Never}
		case r.Admit || r.Retry == algorithms.Never:
		case r.Retry > passed:
			r.Retry -= passed
		default:
			r.Verdict = algorithms.Verdict{Admit: true}
		}
		z.Admits = z.Admits && r.Admit
	}
}

// remember stores the results of a check's zones if it was denied. sent is when
// Redis was called, on the local clock.
func (d *denials) remember(check *stores.Check, sent int64, epoch uint64) {
	if check.Admitted || !d.applies(check) || mayBlock(check) {
		return
	}
	for i := range check.Zones {
		z := &check.Zones[i]
		n := &denial{counter: prepare(z.Counter).serial, key: z.Key, cost: z.Cost, epoch: epoch, sent: sent, now: check.Now, block: z.Block}
		n.block.Started = false
		n.results = make([]stores.Result, len(z.Results))
		for r := range z.Results {
			res := &z.Results[r]
			n.results[r] = stores.Result{Verdict: res.Verdict, Remaining: res.Remaining, Reset: res.Reset, More: res.More}
			switch {
			case res.Admit:
			case res.Retry == algorithms.Never:
				n.until = sent + denialLasts
			default:
				n.until = max(n.until, sent+res.Retry)
			}
		}
		d.slot(z).Store(n)
	}
}

// mayBlock reports whether the next check may start a block, which a denial that is
// remembered would put off.
func mayBlock(check *stores.Check) bool {
	for i := range check.Zones {
		if z := &check.Zones[i]; z.Counter.Blocks != nil && !z.Shadow && z.Block.Until == 0 {
			return true
		}
	}
	return false
}
