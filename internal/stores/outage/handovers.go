package outage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// errAway says that nothing was sent, because the node is not called.
var errAway = errors.New("away")

// A handover leaves with a call, and ends in one of these ways. What the key's snapshot then says is in
// memory/handover.go.
//
//	event                      snapshot            debt        block
//	the call has run           is told             is charged  is told
//	Redis refuses a part: the  is forgotten        is given    is forgotten
//	key was reset since                            up
//	the call has not run       is told again if    is owed     is told again with the
//	                           Redis had lost it   again       next check in its time
//	that is not known          likewise            is given    likewise
//	                                               up
//
// One that fails alone ends as its error says. What a late reply says counts as if it had come in time.

// What this instance knows of a key that Redis has lost, and what the key owes, is handed
// over with the first check of the key, or else in the background, after an outage and
// every second, in calls of handoversPerCall keys for handFor, so that requests and the heartbeat
// are hardly delayed.
const (
	handoversPerCall = 32
	handFor          = 200 * time.Millisecond
)

// Handovers hand over the snapshots and the debts of keys.
type Handovers struct {
	taker

	adopted adopted
	sweeps  sweep
	resets  atomic.Bool // whether Redis has perhaps lost resets

	mu     sync.Mutex
	next   *Handovers                        // of the store that follows; nil: there is none
	ends   bool                              // whether no configuration uses the store any more
	tables map[*memory.Table]*stores.Counter // that may owe
	closed bool                              // nothing is charged any more
}

// add remembers a zone's table, whose keys may owe. If the tag of a key is not known, its
// debt waits for the next check. What a store owes that is closed, or passes on to one that is, is given up.
func (d *Handovers) add(z *stores.ZoneCheck) {
	t := memory.TableOf(z.Counter)
	if !t.Tagged(z) {
		return
	}
	switch next, closed := d.remember(t, z.Counter); {
	case next != nil:
		next.add(z)
	case closed:
		d.giveUpTable(z.Counter, stores.UnchargedClosed)
	}
}

// remember notes a table that may owe, unless what it owes is another's, or nobody's.
func (d *Handovers) remember(t *memory.Table, of *stores.Counter) (next *Handovers, closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next != nil || d.closed {
		return d.next, d.closed
	}
	if d.tables == nil {
		d.tables = make(map[*memory.Table]*stores.Counter)
	}
	if c := d.tables[t]; c == nil || c.Capacity() <= of.Capacity() {
		d.tables[t] = of // a smaller one would cut debts
	}
	return nil, false
}

// PassOn transfers debts, present and future ones, and pending put-backs to the next store.
func (d *Handovers) PassOn(next *Handovers) {
	d.mu.Lock()
	d.next = next
	d.mu.Unlock()
	for _, c := range d.removeTables() {
		d.add(&stores.ZoneCheck{Counter: c})
	}
	if d.sweeps.unfinished() {
		next.LostMemory()
	}
}

// removeTables removes the tables that may owe, and returns them.
func (d *Handovers) removeTables() map[*memory.Table]*stores.Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tables
	d.tables = nil
	return t
}

// TakeAll takes what the keys of a check have to hand over, to be sent in the same call,
// after [Fallback.Look].
func (d *Handovers) TakeAll(check *stores.Check, now memory.Instant) (all []Handover) {
	for i := range check.Zones {
		z := &check.Zones[i]
		if check.Peek {
			continue
		}
		if z.Guarded() {
			all = include(all, block(z, now, false), i)
		}
		if z.Due {
			h, _ := d.take(memory.TableOf(z.Counter).Snapshots(), z, now, false)
			z.Known = z.Known && h.Told == nil
			all = include(all, h, i)
		}
	}
	return all
}

// TakeLost takes the snapshots of the keys that Redis has lost, and their last blocks.
func (d *Handovers) TakeLost(check *stores.Check) (all []Handover) {
	now := d.redis.Now(check.Zones[0].Tag)
	for i := range check.Zones {
		z := &check.Zones[i]
		if !z.Known {
			continue
		}
		z.Known = false
		if z.Guarded() {
			all = include(all, block(z, now, true), i)
		}
		h, _ := d.take(memory.TableOf(z.Counter).Snapshots(), z, now, true)
		all = include(all, h, i)
	}
	d.LostKey()
	return all
}

// LostKey notes that Redis has lost a key, and perhaps others: all snapshots are put back.
func (d *Handovers) LostKey() { d.sweeps.want(keyMissing) }

// LostMemory notes that a node does not know this instance any more: all snapshots are put back, even if that
// was done a moment ago, and the latest resets before them.
func (d *Handovers) LostMemory() {
	d.resets.Store(true)
	d.sweeps.want(memoryLost)
}

// perCall returns how many keys are handed over in one call in the background.
func (d *Handovers) perCall() int {
	if d.o.Clustered {
		return 1 // the keys lie in different slots
	}
	return handoversPerCall
}

// EndCall ends a call that carried handovers, but for those that [Handovers.Answered] has ended.
func (d *Handovers) EndCall(all []Handover, err error) {
	switch {
	case len(all) == 0:
	case err == nil:
		d.endCall(all, Fate{Known: true, Ran: true})
	case errors.Is(err, errAway):
		d.endCall(all, Fate{Known: true})
	default:
		d.redis.Await(err, func(of Fate) { d.endCall(all, of) })
	}
}

// endCall ends a call that carried handovers.
func (d *Handovers) endCall(all []Handover, of Fate) {
	for i := range all {
		h := &all[i]
		if i < len(of.Handed) {
			d.Answered(h, of.Handed[i].Refused, of.Handed[i].Err)
			continue
		}
		if h.snapshots == nil {
			continue
		}
		noted := h.snapshots.End(&h.Zone, &h.Handover, of.Ran, of.Known && !of.Ran, d.o.Clock())
		if !of.Known {
			d.giveUp(h.Zone.Counter.Zone, stores.UnchargedUnknown, h.Cost)
		}
		d.noted(&h.Zone, noted, h.Cost)
	}
}

// Answered applies the reply to one of the handovers of a call: what Redis refused of it, because the
// key was reset since, or why it failed alone. What was refused is forgotten, and debts are reported
// as not charged.
func (d *Handovers) Answered(h *Handover, refused Part, err error) {
	if err != nil {
		d.EndCall([]Handover{*h}, err)
		return
	}
	switch told := refused&PartTold != 0; {
	case told && h.Block != nil:
		memory.BlocksOf(h.Zone.Counter).Reset(h.Zone.Key)
	case told:
		h.snapshots.Forget(h.Zone.Key)
	}
	if refused&PartDebts != 0 {
		d.giveUp(h.Zone.Counter.Zone, stores.UnchargedReset, h.Cost)
	}
}

// Pay hands over the debts of keys that no request checks, table by table, and after a
// loss of Redis' memory the snapshots. It returns whether it is to be called again at once,
// because a node that is back waits for debts.
func (d *Handovers) Pay(ctx context.Context) (again bool) {
	d.giveUpReplaced()
	if !d.redis.AnyUsable() {
		return false
	}
	if d.resets.Swap(false) {
		d.redis.ResetAgain(ctx)
	}
	paid, all, end := d.redis.Owed(), true, time.Now().Add(handFor)
	for _, c := range d.removeTables() {
		n := memory.TableOf(c).Snapshots()
		from, ok := d.walk(ctx, debtors{d.keysOf(c, n)}, memory.Cursor{}, end)
		if !ok || !from.Done() {
			d.add(&stores.ZoneCheck{Counter: c}) // continues after the next heartbeat
		}
		again = again || ok && !from.Done() && d.redis.Pausing()
		all = all && from.Done()
	}
	if all {
		paid()
	}
	d.sweep(ctx, end)
	return again
}

// Adopt remembers a counter of rules that are in force from now on, and its Overrides. If one of
// them has Blocked, it is a counter that has.
func (d *Handovers) Adopt(c *stores.Counter) { d.adopted.add(c) }

// sources returns all that this instance knows, to be put back.
func (d *Handovers) sources() (all []source) {
	seen := make(map[*memory.Blocks]bool) // several tables of a zone have them in common
	for _, c := range d.adopted.counters() {
		if b := memory.BlocksOf(c); b != nil && !seen[b] {
			seen[b] = true
			all = append(all, blocks{&d.taker, c, b.Walk(d.o.Clock)})
		}
		if n := memory.TableOf(c).Snapshots(); n != nil {
			all = append(all, snapshots{d.keysOf(c, n)})
		}
	}
	return all
}

// keysOf returns the keys of a counter's table.
func (d *Handovers) keysOf(c *stores.Counter, n *memory.Snapshots) keys {
	return keys{&d.taker, c, n, d.adopted.chargedAs(c)}
}

// sweep puts back all that is known after a loss, until end. If there was an outage, it begins
// when the other instances have charged their debts too: what this one learns of them is put
// back after the next loss.
func (d *Handovers) sweep(ctx context.Context, end time.Time) {
	s := &d.sweeps
	if s.due(time.Now(), d.redis.Pausing()) {
		s.begin(time.Now(), d.sources())
	}
	for ok := true; ok && s.current() != nil && ctx.Err() == nil && time.Now().Before(end); {
		var from memory.Cursor
		from, ok = d.walk(ctx, s.current(), s.from, end)
		s.reached(from)
		ok = ok || d.o.Clustered // otherwise again after the next heartbeat
	}
}

// walk hands over what keys of a source have, from a position until end. It returns where to
// continue, and whether no call failed.
func (d *Handovers) walk(ctx context.Context, of source, from memory.Cursor, end time.Time) (_ memory.Cursor, ok bool) {
	ok = true
	for !from.Done() && ctx.Err() == nil && time.Now().Before(end) {
		keys, to := of.next(make([]stores.Key, 0, d.perCall()), from)
		more, err := d.handOver(ctx, of, keys)
		if err != nil {
			if ok = false; !d.o.Clustered { // where the next key may lie on another node
				return from, ok
			}
		}
		if !more {
			from = to
		}
	}
	return from, ok
}

// handOver hands over what keys have, in one call. more says that it is to be called with them
// again: a debt was too large for one call.
func (d *Handovers) handOver(ctx context.Context, of source, keys []stores.Key) (more bool, err error) {
	var some []Handover
	for _, k := range keys {
		if tag := of.tag(k); !d.redis.Usable(tag) {
			d.EndCall(some, errAway)
			d.unswept(of, tag)
			return false, errAway
		}
		h, rest := of.take(k)
		if !h.empty() {
			some = append(some, h)
		}
		more = more || rest
	}
	failed, err := d.send(ctx, some)
	if err != nil {
		d.unswept(of, some[0].Zone.Tag)
		return false, err
	}
	if failed {
		d.add(&stores.ZoneCheck{Counter: of.counter()}) // again after the next heartbeat
	}
	return more && !failed, nil
}

// unswept notes that what Redis may have lost could not be put back: the next keys may lie on
// another node, and the sweep goes on.
func (d *Handovers) unswept(of source, tag stores.Key) {
	if of.lost() {
		d.redis.Unswept(tag)
	}
}

// send makes handovers of one counter's keys in one call, and learns what is in Redis then:
// no check of a key may follow that says it. failed says that the handover of a single key
// has failed, which is made again; that of a block is made with the next check of the key.
func (d *Handovers) send(ctx context.Context, some []Handover) (failed bool, err error) {
	if len(some) == 0 {
		return false, nil
	}
	r, err := d.redis.HandOver(ctx, some)
	for i, of := range r.Keys {
		h := &some[i]
		d.Answered(h, of.Refused, of.Err)
		failed = failed || of.Err != nil && h.Block == nil
		if of.Has != nil {
			lost := h.snapshots.Learn(of.Has, r.Time, h.Replaces(of.Refused, of.Err), func() {})
			d.giveUp(h.Zone.Counter.Zone, stores.UnchargedUnsupported, lost)
		}
	}
	if err != nil {
		d.EndCall(some[len(r.Keys):], err) // what was answered has ended
	}
	return failed, err
}
