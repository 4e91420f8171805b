package redis

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

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

// handovers hand over the snapshots and the debts of keys.
type handovers struct {
	o     *Options
	conn  *conn
	share func(*stores.Counter) []algorithms.Rule

	wake chan struct{} // receives when a node is used again

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
	next   *handovers                        // of the store that follows; nil: there is none
	tables map[*memory.Table]*stores.Counter // that may owe

	// The tables whose keys have snapshots, each with one of the counters that are in use.
	known map[weak.Pointer[memory.Table]]weak.Pointer[stores.Counter]
}

// handover is a handover of a key on its way to Redis.
type handover struct {
	memory.Handover
	snapshots *memory.Snapshots
	counter   *stores.Counter
	zone      int // of the check
	key, tag  stores.Key
	op        []byte
	names     []string
	look      *stores.Check // in the background, that learns what is in Redis after it
}

// now returns the present time on the clocks of this process and of a tag's node.
func (d *handovers) now(tag stores.Key) memory.Instant {
	local := d.o.Clock()
	return memory.Instant{Local: local, Shared: d.conn.at(tag).clock.shared(local), Tolerance: d.tolerance()}
}

// tolerance is by how many microseconds an estimate of Redis' clock may be wrong.
func (d *handovers) tolerance() int64 { return 1e6 + 2*d.o.Timeout.Microseconds() }

// add remembers a zone's table, whose keys may owe. If the tag of a key is not known, its
// debt waits for the next check.
func (d *handovers) add(z *stores.ZoneCheck) {
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

// passOn has the handovers of the store that follows charge what is owed, now and later, and put
// back what these have not.
func (d *handovers) passOn(next *handovers) {
	d.mu.Lock()
	d.next = next
	d.mu.Unlock()
	for _, c := range d.takeTables() {
		d.add(&stores.ZoneCheck{Counter: c})
	}
	if d.lost.Load() || d.emptied.Load() || d.sweeps.Load() {
		next.lostMemory()
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
func (d *handovers) dropReplaced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.tables, func(t *memory.Table, _ *stores.Counter) bool { return !t.Counted() })
}

// takeTables returns the tables that may owe, and removes them.
func (d *handovers) takeTables() map[*memory.Table]*stores.Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tables
	d.tables = nil
	return t
}

// takeAll takes what the keys of a check have to hand over, to be sent in the same call,
// and sets the zones' Known.
func (d *handovers) takeAll(check *stores.Check) (all []handover) {
	now := d.now(check.Zones[0].Tag)
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
				h.zone = i
				all = append(all, h)
				z.Known = known && h.Told == nil
			}
		}
	}
	return all
}

// takeForgotten takes the snapshots of the keys that Redis has lost.
func (d *handovers) takeForgotten(check *stores.Check) (all []handover) {
	now := d.now(check.Zones[0].Tag)
	for i := range check.Zones {
		z := &check.Zones[i]
		if !z.Known {
			continue
		}
		z.Known = false
		if h, _, ok := d.take(memory.TableOf(z.Counter).Snapshots(), z, now, true); ok {
			h.zone = i
			all = append(all, h)
		}
	}
	d.forgotten()
	return all
}

// forgotten has all snapshots put back, because Redis has lost a key, and others perhaps.
func (d *handovers) forgotten() { d.lost.Store(true) }

// lostMemory has all snapshots put back, however short ago that was, because a node does not
// know this instance any more.
func (d *handovers) lostMemory() { d.emptied.Store(true) }

// sweepDue reports whether a sweep is to begin.
func (d *handovers) sweepDue() bool {
	if len(d.sweeping) > 0 || d.conn.nodes.holding() {
		return false
	}
	return d.emptied.Load() || d.lost.Load() && time.Since(d.swept) >= sweepEvery
}

// take takes what a zone's key has to hand over, if it has anything. With told it hands
// over its snapshot in any case. more says that the key still owes.
func (d *handovers) take(n *memory.Snapshots, z *stores.ZoneCheck, now memory.Instant, told bool) (h handover, more, ok bool) {
	z.Rules = d.share(z.Counter)
	h = handover{snapshots: n, counter: z.Counter, key: z.Key, tag: z.Tag}
	h.Handover, more = n.Take(z, now, told)
	if h.Told == nil && h.Debts == nil {
		return h, more, false
	}
	h.op = appendHandover(nil, z, &h.Handover, now.Tolerance, &d.conn.at(z.Tag).clock)
	prefix := d.conn.o.Prefix
	h.names = []string{string(appendName(nil, prefix, z)), resetName(prefix, z)}
	return h, more, true
}

// settle ends a call that carried handovers. The debts that Redis has certainly not charged are
// owed again. A debt that may have been charged is not sent again.
func (d *handovers) settle(all []handover, err error) {
	rejected := err != nil && !mayHaveRun(err)
	for i := range all {
		if h := &all[i]; h.snapshots.Settle(h.key, &h.Handover, err == nil, rejected) {
			d.add(&stores.ZoneCheck{Counter: h.counter, Key: h.key, Tag: h.tag})
		}
	}
}

// answered reads the reply to a handover. It returns whether Redis took it: it does not
// for a key that was reset since. Then the instance forgets the snapshot. Of several
// handovers in a call, one can fail alone: its debt is owed again.
func (d *handovers) answered(h *handover, r *reply) (taken bool, err error) {
	if err := r.failed(); err != nil {
		d.settle([]handover{*h}, err)
		return false, err
	}
	if taken = r.byte() == 0; !taken {
		h.snapshots.Drop(h.key)
	}
	return taken, nil
}

// pay hands over the debts of keys that no request checks, table by table, and after a
// loss of Redis' memory the snapshots. It returns whether it is to be called again at once,
// because a node that is back waits for debts.
func (d *handovers) pay(ctx context.Context) (again bool) {
	d.dropReplaced()
	if !d.conn.anyUsable() {
		return false
	}
	owed, paid, end := d.conn.nodes.owed(), true, time.Now().Add(handFor)
	for _, c := range d.takeTables() {
		n := memory.TableOf(c).Snapshots()
		from, ok := d.table(ctx, c, memory.Cursor{}, end, false, n.Debtors)
		if !ok || !from.Done() {
			d.add(&stores.ZoneCheck{Counter: c}) // continues after the next heartbeat
		}
		again = again || ok && !from.Done() && d.conn.nodes.holding()
		paid = paid && from.Done()
	}
	if paid {
		for _, n := range owed {
			n.paid(d.o.Clock())
		}
	}
	d.sweep(ctx, end)
	return again
}

// sweep puts all snapshots back after a loss, until end. If there was an outage, it begins
// when the other instances have charged their debts too: what this one learns of them is put
// back after the next loss.
func (d *handovers) sweep(ctx context.Context, end time.Time) {
	if d.sweepDue() {
		d.sweeps.Store(true)
		d.lost.Store(false)
		d.emptied.Store(false)
		d.swept, d.sweeping, d.from = time.Now(), d.counters(), memory.Cursor{}
		d.blocks = make(map[*memory.Blocks]*blockSweep)
	}
	for len(d.sweeping) > 0 && ctx.Err() == nil && time.Now().Before(end) {
		c := d.sweeping[0]
		done, ok := d.putBack(ctx, c, end)
		if done {
			done, ok = d.sweepTable(ctx, c, end)
		}
		if !ok && !d.conn.o.Cluster {
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
func (d *handovers) sweepTable(ctx context.Context, c *stores.Counter, end time.Time) (done, ok bool) {
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
func (d *handovers) table(ctx context.Context, c *stores.Counter, from memory.Cursor, end time.Time, told bool,
	next func([]stores.Key, memory.Cursor) ([]stores.Key, memory.Cursor),
) (_ memory.Cursor, ok bool) {
	perCall := handoversPerCall
	if d.conn.o.Cluster {
		perCall = 1 // the keys lie in different slots
	}
	ok = true
	for !from.Done() && ctx.Err() == nil && time.Now().Before(end) {
		keys, to := next(make([]stores.Key, 0, perCall), from)
		if err := d.handOver(ctx, c, keys, told, end); err != nil {
			if ok = false; !d.conn.o.Cluster { // where the next key may lie on another node
				return from, ok
			}
		}
		from = to
	}
	return from, ok
}

// handOver hands over what keys have, in one call; a debt that is too large for one, in
// several until end.
func (d *handovers) handOver(ctx context.Context, c *stores.Counter, keys []stores.Key, told bool, end time.Time) error {
	n, overrides := memory.TableOf(c).Snapshots(), cmp.Or(c.Base, c).Overrides
	for len(keys) > 0 {
		var some []handover
		rest := keys[:0]
		for _, k := range keys {
			tag, override := n.Origin(k)
			if !d.conn.usable(tag) {
				d.settle(some, errOpen)
				d.unswept(tag, told)
				return errOpen
			}
			c := cmp.Or(overrides[override], c)
			h, more, ok := d.take(n, &stores.ZoneCheck{Counter: c, Key: k, Tag: tag}, d.now(tag), told)
			if ok {
				h.look = &stores.Check{Peek: true, Zones: []stores.ZoneCheck{usedOf(&stores.ZoneCheck{Counter: c, Key: k, Tag: tag})}}
				some = append(some, h)
			}
			if more {
				rest = append(rest, k)
			}
		}
		failed, err := d.send(ctx, some)
		if err != nil {
			d.unswept(some[0].tag, told)
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
func (d *handovers) unswept(tag stores.Key, told bool) {
	if told {
		d.conn.at(tag).unswept.Store(true)
	}
}

// learns remembers a zone's counter, whose keys have snapshots, unless one with the same table is
// remembered: the zone may have been decided by rules that are replaced meanwhile.
func (d *handovers) learns(z *stores.ZoneCheck) {
	c := cmp.Or(z.Counter.Base, z.Counter)
	if !memory.TableOf(c).Tagged(z) || prepare(c).learns.Swap(true) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[weak.Make(memory.TableOf(c))].Value() == nil {
		d.rememberLocked(c)
	}
}

// adopt remembers a counter of rules that are in force from now on.
func (d *handovers) adopt(c *stores.Counter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rememberLocked(c)
}

// rememberLocked remembers the counter of a table. d.mu is held.
func (d *handovers) rememberLocked(c *stores.Counter) {
	if d.known == nil {
		d.known = make(map[weak.Pointer[memory.Table]]weak.Pointer[stores.Counter])
	}
	maps.DeleteFunc(d.known, func(_ weak.Pointer[memory.Table], w weak.Pointer[stores.Counter]) bool { return w.Value() == nil })
	d.known[weak.Make(memory.TableOf(c))] = weak.Make(c)
}

// counters returns the counters whose keys have snapshots or blocks, one for each table.
func (d *handovers) counters() (all []*stores.Counter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.known {
		if c := w.Value(); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// send makes handovers of one counter's keys in one call, and learns what is in Redis then:
// no check of a key may follow that says it. failed says that the handover of a single key
// has failed.
func (d *handovers) send(ctx context.Context, some []handover) (failed bool, err error) {
	if len(some) == 0 {
		return false, nil
	}
	// A call under way is not canceled: it would not be known whether it was made.
	ctx, cancel := d.conn.background(context.WithoutCancel(ctx))
	defer cancel()
	q := newCall(time.Time{}, some[0].tag)
	for i := range some {
		h := &some[i]
		q.add(h.names, h.op)
		q.decide(d.conn.o.Prefix, h.look, &d.conn.at(h.tag).clock)
	}
	r, now, err := d.conn.call(ctx, q)
	sent := err
	for i := 0; i < len(some) && err == nil; i++ {
		h := &some[i]
		taken, wrong := d.answered(h, &r)
		if wrong != nil {
			failed = true
			d.conn.fail(wrong)
		}
		if r.readPeek(&h.look.Zones[0], now) == nil {
			d.learn(h, now, taken && h.Told != nil)
		}
		err = r.err
	}
	d.settle(some, sent) // but for those that have failed alone
	return failed, err
}

// learn records what the peek after a handover found.
func (d *handovers) learn(h *handover, now int64, replace bool) {
	at := memory.Instant{Local: d.o.Clock(), Shared: now, Tolerance: d.tolerance()}
	z := &h.look.Zones[0]
	h.snapshots.Learn(z, at, replace, func() {})
	d.learns(z)
}
