package outage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/stores"
)

// errAway says that nothing was sent, because the node is not called.
var errAway = errors.New("away")

// What this instance knows of a key that Redis has lost, and what the key owes, is handed
// over with the first check of the key, or else in the background, after an outage and
// every second, in calls of handoversPerCall keys for handFor, so that requests and the heartbeat
// are hardly delayed.
const (
	handoversPerCall = 32
	handFor          = 200 * time.Millisecond

	// sweepEvery is how often all snapshots are put back, at most, because keys are missing.
	// A Redis that evicts keys loses some all the time.
	sweepEvery = time.Minute
)

// Handovers hand over the snapshots and the debts of keys.
type Handovers struct {
	// Wake receives when a node is used again.
	Wake chan struct{}

	o     Options
	redis Redis
	share func(*stores.Counter) []algorithms.Rule

	// After a loss, all snapshots and blocks are put back: what is in sweeping, of the first one
	// from a position on.
	lost     atomic.Bool // a key is missing
	emptied  atomic.Bool // a node has lost its memory
	sweeps   atomic.Bool // what that began has not ended
	swept    time.Time   // when that last began
	sweeping []source
	from     memory.Cursor

	mu     sync.Mutex
	next   *Handovers                        // of the store that follows; nil: there is none
	tables map[*memory.Table]*stores.Counter // that may owe

	known []weak.Pointer[stores.Counter] // that were adopted, whose keys have snapshots
}

// Handover is a snapshot, a debt or a block of a key on its way to Redis.
type Handover struct {
	// Handover is the snapshot and the debts, if there is no Block.
	memory.Handover

	// Block is to be put back; nil: this is none.
	Block *memory.KnownBlock

	// BlockTime is what time it should be in Redis by the clock that the block is on.
	BlockTime int64

	// Zone has the counter, key and tag.
	Zone stores.ZoneCheck

	// At is the index of the zone in the check.
	At int

	// Tolerance is by how many microseconds an estimate of Redis' clock may be wrong.
	Tolerance int64

	snapshots *memory.Snapshots // nil with a Block
}

// add remembers a zone's table, whose keys may owe. If the tag of a key is not known, its
// debt waits for the next check.
func (d *Handovers) add(z *stores.ZoneCheck) {
	t := memory.TableOf(z.Counter)
	if !t.Tagged(z) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next != nil {
		d.next.add(z)
		return
	}
	if d.tables == nil {
		d.tables = make(map[*memory.Table]*stores.Counter)
	}
	if c := d.tables[t]; c == nil || c.Capacity() <= z.Counter.Capacity() {
		d.tables[t] = z.Counter // a smaller one would cut debts
	}
}

// PassOn has the handovers of the store that follows charge what is owed, now and later, and put
// back what these have not.
func (d *Handovers) PassOn(next *Handovers) {
	d.mu.Lock()
	d.next = next
	d.mu.Unlock()
	for _, c := range d.takeTables() {
		d.add(&stores.ZoneCheck{Counter: c})
	}
	if d.lost.Load() || d.emptied.Load() || d.sweeps.Load() {
		next.LostMemory()
	}
}

// takeTables returns the tables that may owe, and removes them.
func (d *Handovers) takeTables() map[*memory.Table]*stores.Counter {
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
			if h, ok := block(z, now, false); ok {
				h.At = i
				all = append(all, h)
			}
		}
		if z.Due {
			if h, _, ok := d.take(memory.TableOf(z.Counter).Snapshots(), z, now, false); ok {
				h.At = i
				all = append(all, h)
				z.Known = z.Known && h.Told == nil
			}
		}
	}
	return all
}

// TakeForgotten takes the snapshots of the keys that Redis has lost, and their last blocks.
func (d *Handovers) TakeForgotten(check *stores.Check) (all []Handover) {
	now := d.redis.Now(check.Zones[0].Tag)
	for i := range check.Zones {
		z := &check.Zones[i]
		if !z.Known {
			continue
		}
		z.Known = false
		if z.Guarded() {
			if h, ok := block(z, now, true); ok {
				h.At = i
				all = append(all, h)
			}
		}
		if h, _, ok := d.take(memory.TableOf(z.Counter).Snapshots(), z, now, true); ok {
			h.At = i
			all = append(all, h)
		}
	}
	d.Forgotten()
	return all
}

// Forgotten has all snapshots put back, because Redis has lost a key, and others perhaps.
func (d *Handovers) Forgotten() { d.lost.Store(true) }

// LostMemory has all snapshots put back, however short ago that was, because a node does not
// know this instance any more.
func (d *Handovers) LostMemory() { d.emptied.Store(true) }

// sweepDue reports whether a sweep is to begin.
func (d *Handovers) sweepDue() bool {
	if len(d.sweeping) > 0 || d.redis.Holding() {
		return false
	}
	return d.emptied.Load() || d.lost.Load() && time.Since(d.swept) >= sweepEvery
}

// perCall returns how many keys are handed over in one call in the background.
func (d *Handovers) perCall() int {
	if d.o.Clustered {
		return 1 // the keys lie in different slots
	}
	return handoversPerCall
}

// take takes what a zone's key has to hand over, if it has anything. With told it hands
// over its snapshot in any case. more says that the key still owes.
func (d *Handovers) take(n *memory.Snapshots, z *stores.ZoneCheck, now memory.Instant, told bool) (h Handover, more, ok bool) {
	z.Rules = d.share(z.Counter)
	h = Handover{Zone: stores.ZoneCheck{Counter: z.Counter, Key: z.Key, Tag: z.Tag}, Tolerance: now.Tolerance, snapshots: n}
	h.Handover, more = n.Take(z, now, told)
	return h, more, h.Told != nil || h.Debts != nil
}

// Settle ends a call that carried handovers. The debts that Redis has certainly not charged are
// owed again. A debt that may have been charged is not sent again, and counted as not charged unless
// a late reply shows that it was.
func (d *Handovers) Settle(all []Handover, err error) {
	switch {
	case len(all) == 0:
	case err == nil || errors.Is(err, errAway):
		d.settle(all, err == nil, err != nil)
	default:
		d.redis.Await(err, func(of Fate) {
			d.settle(all, of.Ran, of.Known && !of.Ran)
			for i := range all {
				if h := &all[i]; !of.Known {
					d.giveUp(h.Zone.Counter.Zone, stores.UnchargedUnknown, h.Cost)
				}
			}
		})
	}
}

// settle ends a call that carried handovers.
func (d *Handovers) settle(all []Handover, ran, rejected bool) {
	for i := range all {
		h := &all[i]
		if h.snapshots == nil {
			continue
		}
		switch starts, ok := h.snapshots.Settle(&h.Zone, &h.Handover, ran, rejected, d.o.Clock()); {
		case starts:
			d.add(&h.Zone)
		case !ok:
			d.giveUp(h.Zone.Counter.Zone, stores.UnchargedFull, h.Cost)
		}
	}
}

// Answered takes the reply to one of the handovers of a call: what Redis refused of it, because the
// key was reset since, or why it failed alone. What was refused is forgotten, and debts are reported
// as not charged.
func (d *Handovers) Answered(h *Handover, refused Part, err error) {
	if err != nil {
		d.Settle([]Handover{*h}, err)
		return
	}
	switch told := refused&PartTold != 0; {
	case told && h.Block != nil:
		memory.BlocksOf(h.Zone.Counter).Reset(h.Zone.Key)
	case told:
		h.snapshots.Drop(h.Zone.Key)
	}
	if refused&PartDebts != 0 {
		d.giveUp(h.Zone.Counter.Zone, stores.UnchargedReset, h.Cost)
	}
}

// Replaces says whether a handover of which Redis refused a part, or which failed, has put back the
// snapshot.
func (h *Handover) Replaces(refused Part, err error) bool {
	return err == nil && h.Told != nil && refused&PartTold == 0
}

// Pay hands over the debts of keys that no request checks, table by table, and after a
// loss of Redis' memory the snapshots. It returns whether it is to be called again at once,
// because a node that is back waits for debts.
func (d *Handovers) Pay(ctx context.Context) (again bool) {
	d.giveUpReplaced()
	if !d.redis.AnyUsable() {
		return false
	}
	paid, all, end := d.redis.Owed(), true, time.Now().Add(handFor)
	for _, c := range d.takeTables() {
		n := memory.TableOf(c).Snapshots()
		from, ok := d.walk(ctx, d.keysOf(c, n.Debtors, false), memory.Cursor{}, end)
		if !ok || !from.Done() {
			d.add(&stores.ZoneCheck{Counter: c}) // continues after the next heartbeat
		}
		again = again || ok && !from.Done() && d.redis.Holding()
		all = all && from.Done()
	}
	if all {
		paid()
	}
	d.sweep(ctx, end)
	return again
}

// source is keys that have something to hand over.
type source struct {
	counter *stores.Counter

	// next appends keys to a list, up to its capacity, and returns where to continue.
	next func([]stores.Key, memory.Cursor) ([]stores.Key, memory.Cursor)

	// tag returns the tag of a key, by which its node is found.
	tag func(stores.Key) stores.Key

	// take takes what a key has to hand over, if it has anything. more says that it has more.
	take func(stores.Key) (h Handover, more, ok bool)

	// lost says that Redis may have lost it: if it cannot be handed over now, all is put back when
	// the node answers.
	lost bool
}

// sources returns all that this instance knows, to be put back.
func (d *Handovers) sources() (all []source) {
	seen := make(map[*memory.Blocks]bool) // several tables of a zone have them in common
	for _, c := range d.counters() {
		if b := memory.BlocksOf(c); b != nil && !seen[b] {
			seen[b] = true
			all = append(all, d.blocksOf(c, b))
		}
		if n := memory.TableOf(c).Snapshots(); n != nil {
			next := func(keys []stores.Key, from memory.Cursor) ([]stores.Key, memory.Cursor) {
				return n.Living(keys, from, c.Rules, d.o.Clock())
			}
			all = append(all, d.keysOf(c, next, true))
		}
	}
	return all
}

// sweep puts back all that is known after a loss, until end. If there was an outage, it begins
// when the other instances have charged their debts too: what this one learns of them is put
// back after the next loss.
func (d *Handovers) sweep(ctx context.Context, end time.Time) {
	if d.sweepDue() {
		d.sweeps.Store(true)
		d.lost.Store(false)
		d.emptied.Store(false)
		d.swept, d.sweeping, d.from = time.Now(), d.sources(), memory.Cursor{}
	}
	for ok := true; ok && len(d.sweeping) > 0 && ctx.Err() == nil && time.Now().Before(end); {
		if d.from, ok = d.walk(ctx, d.sweeping[0], d.from, end); d.from.Done() {
			d.sweeping, d.from = d.sweeping[1:], memory.Cursor{}
		}
		ok = ok || d.o.Clustered // otherwise again after the next heartbeat
	}
	d.sweeps.Store(len(d.sweeping) > 0)
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
			d.Settle(some, errAway)
			d.unswept(of, tag)
			return false, errAway
		}
		h, rest, ok := of.take(k)
		if ok {
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
		d.add(&stores.ZoneCheck{Counter: of.counter}) // again after the next heartbeat
	}
	return more && !failed, nil
}

// unswept notes that what Redis may have lost could not be put back: the next keys may lie on
// another node, and the sweep goes on.
func (d *Handovers) unswept(of source, tag stores.Key) {
	if of.lost {
		d.redis.Unswept(tag)
	}
}

// keysOf returns keys of a counter, with their debts and, with told, their snapshots.
func (d *Handovers) keysOf(c *stores.Counter, next func([]stores.Key, memory.Cursor) ([]stores.Key, memory.Cursor), told bool) source {
	n, as := memory.TableOf(c).Snapshots(), d.chargedAs(c)
	tag := func(k stores.Key) stores.Key {
		tag, _ := n.Origin(k)
		return tag
	}
	take := func(k stores.Key) (h Handover, more, ok bool) {
		tag, override := n.Origin(k)
		return d.take(n, &stores.ZoneCheck{Counter: as(override), Key: k, Tag: tag}, d.redis.Now(tag), told)
	}
	return source{c, next, tag, take, told}
}

// Adopt remembers a counter of rules that are in force from now on, and its Overrides. If one of
// them has Blocked, it is a counter that has.
func (d *Handovers) Adopt(c *stores.Counter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = slices.DeleteFunc(d.known, func(w weak.Pointer[stores.Counter]) bool { return w.Value() == nil })
	d.known = append(d.known, weak.Make(c))
}

// counters returns the counters whose keys have snapshots or blocks, by their tables: the last that
// was adopted and is in use, for a configuration that was tried may be gone.
func (d *Handovers) counters() map[stores.Table]*stores.Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[stores.Table]*stores.Counter)
	for _, w := range d.known {
		if c := w.Value(); c != nil {
			all[c.Table] = c
		}
	}
	return all
}

// chargedAs returns the counter under which what is known of a key is handed over: that of its
// override in force, or else before, or else c.
func (d *Handovers) chargedAs(c *stores.Counter) func(override int64) *stores.Counter {
	now := d.counters()[c.Table]
	return func(override int64) *stores.Counter {
		if now != nil && now.Overrides[override] != nil {
			return now.Overrides[override]
		}
		return cmp.Or(cmp.Or(c.Base, c).Overrides[override], c)
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
			h.snapshots.Learn(of.Has, r.Time, h.Replaces(of.Refused, of.Err), func() {})
		}
	}
	d.Settle(some, err) // but for those that have failed alone
	return failed, err
}
