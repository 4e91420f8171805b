package outage

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
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

	// After a loss, all snapshots are put back: those of the counters in sweeping, of the
	// first one from a position on.
	lost     atomic.Bool // a key is missing
	emptied  atomic.Bool // a node has lost its memory
	sweeps   atomic.Bool // what that began has not ended
	swept    time.Time   // when that last began
	sweeping []*stores.Counter
	from     memory.Cursor
	blocks   map[*memory.Blocks]*blockSweep

	mu     sync.Mutex
	next   *Handovers                        // of the store that follows; nil: there is none
	tables map[*memory.Table]*stores.Counter // that may owe

	known []weak.Pointer[stores.Counter] // that were adopted, whose keys have snapshots
}

// Handover is a handover of a key on its way to Redis.
type Handover struct {
	memory.Handover

	// Zone has the counter, key and tag, and At is its index in the check.
	Zone stores.ZoneCheck
	At   int

	// Tolerance is by how many microseconds an estimate of Redis' clock may be wrong.
	Tolerance int64

	snapshots *memory.Snapshots
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
	if !t.Counted() {
		return
	}
	if d.tables == nil {
		d.tables = make(map[*memory.Table]*stores.Counter)
	}
	if c := d.tables[t]; c == nil || capacityOf(c) <= capacityOf(z.Counter) {
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

// capacityOf returns the sum of the capacities of a counter's rules.
func capacityOf(c *stores.Counter) (sum float64) {
	for _, r := range c.Rules {
		sum += float64(r.Capacity())
	}
	return sum
}

// dropReplaced forgets tables in which no zone counts any more, and what their keys owe: they
// would fill the memory as often as rules change in an outage.
func (d *Handovers) dropReplaced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.tables, func(t *memory.Table, _ *stores.Counter) bool { return !t.Counted() })
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
// and sets the zones' Known.
func (d *Handovers) TakeAll(check *stores.Check, now memory.Instant) (all []Handover) {
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Known = false
		n := memory.TableOf(z.Counter).Snapshots()
		if n == nil || check.Peek {
			continue
		}
		known, due := n.Known(z, now)
		z.Known = known
		if due {
			if h, _, ok := d.take(n, z, now, false); ok {
				h.At = i
				all = append(all, h)
				z.Known = known && h.Told == nil
			}
		}
	}
	return all
}

// TakeForgotten takes the snapshots of the keys that Redis has lost.
func (d *Handovers) TakeForgotten(check *stores.Check) (all []Handover) {
	now := d.redis.Now(check.Zones[0].Tag)
	for i := range check.Zones {
		z := &check.Zones[i]
		if !z.Known {
			continue
		}
		z.Known = false
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
// owed again. A debt that may have been charged is not sent again.
func (d *Handovers) Settle(all []Handover, err error) {
	rejected := err != nil && (errors.Is(err, errAway) || !d.redis.MayHaveRun(err))
	for i := range all {
		if h := &all[i]; h.snapshots.Settle(h.Zone.Key, &h.Handover, err == nil, rejected) {
			d.add(&h.Zone)
		}
	}
}

// Answered takes the reply to one of the handovers of a call: whether Redis took it, which it does
// not if the key was reset since, or why it failed alone. What a key that was reset had is forgotten.
func (d *Handovers) Answered(h *Handover, taken bool, err error) {
	switch {
	case err != nil:
		d.Settle([]Handover{*h}, err)
	case !taken:
		h.snapshots.Drop(h.Zone.Key)
	}
}

// Pay hands over the debts of keys that no request checks, table by table, and after a
// loss of Redis' memory the snapshots. It returns whether it is to be called again at once,
// because a node that is back waits for debts.
func (d *Handovers) Pay(ctx context.Context) (again bool) {
	d.dropReplaced()
	if !d.redis.AnyUsable() {
		return false
	}
	paid, all, end := d.redis.Owed(), true, time.Now().Add(handFor)
	for _, c := range d.takeTables() {
		n := memory.TableOf(c).Snapshots()
		from, ok := d.table(ctx, c, memory.Cursor{}, end, false, n.Debtors)
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

// sweep puts all snapshots back after a loss, until end. If there was an outage, it begins
// when the other instances have charged their debts too: what this one learns of them is put
// back after the next loss.
func (d *Handovers) sweep(ctx context.Context, end time.Time) {
	if d.sweepDue() {
		d.sweeps.Store(true)
		d.lost.Store(false)
		d.emptied.Store(false)
		d.swept, d.sweeping, d.from = time.Now(), slices.Collect(maps.Values(d.counters())), memory.Cursor{}
		d.blocks = make(map[*memory.Blocks]*blockSweep)
	}
	for len(d.sweeping) > 0 && ctx.Err() == nil && time.Now().Before(end) {
		c := d.sweeping[0]
		done, ok := d.putBack(ctx, c, end)
		if done {
			done, ok = d.sweepTable(ctx, c, end)
		}
		if !ok && !d.o.Clustered {
			return // again after the next heartbeat
		}
		if done {
			d.sweeping, d.from = d.sweeping[1:], memory.Cursor{}
		}
	}
	d.sweeps.Store(len(d.sweeping) > 0)
}

// sweepTable puts back the snapshots of a counter's keys, from where it ended before, until
// end. It returns whether these were all, and whether no call failed.
func (d *Handovers) sweepTable(ctx context.Context, c *stores.Counter, end time.Time) (done, ok bool) {
	n := memory.TableOf(c).Snapshots()
	if n == nil { // only blocks are known
		return true, true
	}
	d.from, ok = d.table(ctx, c, d.from, end, true, func(keys []stores.Key, from memory.Cursor) ([]stores.Key, memory.Cursor) {
		return n.Living(keys, from, c.Rules, d.o.Clock())
	})
	return d.from.Done(), ok
}

// table hands over what the keys of one table have that next finds, from a position until
// end. It returns where to continue, and whether no call failed.
func (d *Handovers) table(ctx context.Context, c *stores.Counter, from memory.Cursor, end time.Time, told bool,
	next func([]stores.Key, memory.Cursor) ([]stores.Key, memory.Cursor),
) (_ memory.Cursor, ok bool) {
	ok = true
	for !from.Done() && ctx.Err() == nil && time.Now().Before(end) {
		keys, to := next(make([]stores.Key, 0, d.perCall()), from)
		if err := d.handOver(ctx, c, keys, told, end); err != nil {
			if ok = false; !d.o.Clustered { // where the next key may lie on another node
				return from, ok
			}
		}
		from = to
	}
	return from, ok
}

// handOver hands over what keys have, in one call; a debt that is too large for one, in
// several until end.
func (d *Handovers) handOver(ctx context.Context, c *stores.Counter, keys []stores.Key, told bool, end time.Time) error {
	n, as := memory.TableOf(c).Snapshots(), d.chargedAs(c)
	for len(keys) > 0 {
		var some []Handover
		rest := keys[:0]
		for _, k := range keys {
			tag, override := n.Origin(k)
			if !d.redis.Usable(tag) {
				d.Settle(some, errAway)
				d.unswept(tag, told)
				return errAway
			}
			h, more, ok := d.take(n, &stores.ZoneCheck{Counter: as(override), Key: k, Tag: tag}, d.redis.Now(tag), told)
			if ok {
				some = append(some, h)
			}
			if more {
				rest = append(rest, k)
			}
		}
		failed, err := d.send(ctx, some)
		if err != nil {
			d.unswept(some[0].Zone.Tag, told)
			return err
		}
		if failed {
			d.add(&stores.ZoneCheck{Counter: c}) // again after the next heartbeat
		}
		if keys = rest; len(keys) > 0 && time.Now().After(end) {
			d.add(&stores.ZoneCheck{Counter: c})
			return nil
		}
	}
	return nil
}

// unswept notes that a snapshot, if it was one, could not be put back: the next keys may lie on
// another node, and the sweep goes on. All are put back again when the node answers.
func (d *Handovers) unswept(tag stores.Key, told bool) {
	if told {
		d.redis.Unswept(tag)
	}
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
// has failed.
func (d *Handovers) send(ctx context.Context, some []Handover) (failed bool, err error) {
	if len(some) == 0 {
		return false, nil
	}
	r, err := d.redis.HandOver(ctx, some)
	for i, of := range r.Keys {
		h := &some[i]
		d.Answered(h, of.Taken, of.Err)
		failed = failed || of.Err != nil
		if of.Has != nil {
			h.snapshots.Learn(of.Has, r.Time, of.Taken && h.Told != nil, func() {})
		}
	}
	d.Settle(some, err) // but for those that have failed alone
	return failed, err
}
