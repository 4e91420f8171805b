package outage

import (
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// A debt begins with a charge that is made without Redis (Fallback.Decide, Finish), or with one after a response
// (Fallback.Settle, which package redis calls at once if the node is away, in its finish.go, and otherwise once Redis was
// not told for 29 s, until when it reports the charge again: its charges.go). It ends when a call charges it in Redis
// (handovers.go), when it is lost in one of four ways that nobody counts (below), or when it is given up, which is
// reported with a reason:
//
//	unknown      a call may have charged it: endCall, of debts; Fallback.await, of charges by a decision and, through
//	             Fallback.Settle, of those after responses
//	full         there is no room for it: noted
//	unsupported  an algorithm of the zone cannot hand over: Fallback.owe; or cannot put back what Redis has lost:
//	             Fallback.Learn, and send
//	reset        its key was reset: by this instance (Reset), by another (Answered), or while it was under way (noted)
//	replaced     no zone counts in its table any more, after a reload: giveUpReplaced
//	closed       no store follows that would charge it (PassOn): Close, 10 s after the last use of the store, and add
//
// Not reported is what no longer counts by the rules, such as after the end of a window or, of a key that
// makes room for others, of its block (memory/table.go: evict); what exceeds their capacity (memory/handover.go: Warm,
// Owe, Take, GiveUp); fingerprints of prevent_duplicates without room; and all that a process owes when it stops, also
// charges after responses that Redis was not told of. Before it stops, only the responses that it cuts are charged
// (limiter/underway.go).

// giveUp reports cost of a zone that was to be charged in Redis and is not, or perhaps not.
func (d *Handovers) giveUp(zone string, why stores.Uncharged, cost int64) {
	if cost > 0 {
		d.redis.Uncharged(zone, why, cost)
	}
}

// noted follows what became of a cost that the key of a zone was to owe.
func (d *Handovers) noted(z *stores.ZoneCheck, what memory.Noted, cost int64) {
	switch what {
	case memory.NotedFirst:
		d.add(z)
	case memory.NotedNoRoom:
		d.giveUp(z.Counter.Zone, stores.UnchargedFull, cost)
	case memory.NotedReset:
		d.giveUp(z.Counter.Zone, stores.UnchargedReset, cost)
	}
}

// giveUpKey gives up what a key owes under a counter whose table has snapshots. With reset, the key is reset at the
// same time: a debt that began between would end untold.
func (d *Handovers) giveUpKey(c *stores.Counter, k stores.Key, why stores.Uncharged, reset bool) {
	z := &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k}, Enforced: stores.Enforced{Rules: d.share(c)}}
	now := d.redis.Now(k)
	clock := func() memory.Instant { return now.At(d.o.Clock()) }
	d.giveUp(c.Zone, why, memory.TableOf(c).Snapshots().GiveUp(z, clock, reset))
}

// giveUpTable gives up what the keys of a counter's table owe.
func (d *Handovers) giveUpTable(c *stores.Counter, why stores.Uncharged) {
	n := memory.TableOf(c).Snapshots()
	for from := (memory.Cursor{}); !from.Done(); {
		var keys []stores.Key
		keys, from = n.Debtors(make([]stores.Key, 0, handoversPerCall), from)
		for _, k := range keys {
			d.giveUpKey(c, k, why, false)
		}
	}
}

// Reset resets a key under counters in this process, and gives up what it owes.
func (d *Handovers) Reset(counters []*stores.Counter, k stores.Key) {
	for _, c := range counters {
		if memory.TableOf(c).Snapshots() == nil { // nothing is owed
			c.Reset(k)
			continue
		}
		d.giveUpKey(c, k, stores.UnchargedReset, true)
		if c.Blocked != nil {
			c.Blocked.Reset(k)
		}
	}
}

// End says whether no configuration uses the store any more. Then no zone counts in its tables, and what is
// owed there is charged as long as the store stays open.
func (d *Handovers) End(ends bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ends = ends
}

// giveUpReplaced gives up what is owed in tables in which no zone counts any more: they would fill the
// memory as often as rules change in an outage.
func (d *Handovers) giveUpReplaced() {
	var gone []*stores.Counter
	d.mu.Lock()
	if d.ends {
		d.mu.Unlock()
		return
	}
	for t, c := range d.tables {
		if !t.Counted() {
			gone = append(gone, c)
			delete(d.tables, t)
		}
	}
	d.mu.Unlock()
	for _, c := range gone {
		d.giveUpTable(c, stores.UnchargedReplaced)
	}
}

// Close gives up what is owed, and what late replies say is owed still, because the store ends. What is
// passed on is not.
func (d *Handovers) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	for _, c := range d.removeTables() {
		d.giveUpTable(c, stores.UnchargedClosed)
	}
}
