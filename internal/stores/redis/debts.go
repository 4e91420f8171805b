package redis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// A key's debt is charged in Redis with the first check of the key, or else in
// the background, in calls of debtsPerCall keys for payFor after a heartbeat, so
// that requests and the heartbeat are hardly delayed.
const (
	debtsPerCall = 32
	payFor       = 200 * time.Millisecond
)

// debts are the tables in which keys may owe what was charged without Redis.
type debts struct {
	conn    *conn
	share   func(*stores.Counter) []algorithms.Rule
	settled func(tag stores.Key) bool // whether Redis decides all keys of the tag's node

	mu     sync.Mutex
	tables map[*memory.Table]*stores.Counter
}

// debt is the debt of a key on its way to Redis.
type debt struct {
	snapshots *memory.Snapshots
	key       stores.Key
	op        []byte
	names     []string
}

// add remembers a zone's table. The names of what is counted in addition to a
// zone's key do not follow from the key: such a debt waits for the next check.
func (d *debts) add(z *stores.ZoneCheck) {
	if z.Tag != z.Key {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tables == nil {
		d.tables = make(map[*memory.Table]*stores.Counter)
	}
	d.tables[memory.TableOf(z.Counter)] = z.Counter
}

// takeTables returns the tables and removes them.
func (d *debts) takeTables() map[*memory.Table]*stores.Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tables
	d.tables = nil
	return t
}

// takeAll takes the debts of a check's zones, to be charged in the same call.
func (d *debts) takeAll(check *stores.Check) (all []debt) {
	for i := range check.Zones {
		if o, ok := d.take(&check.Zones[i]); ok {
			all = append(all, o)
		}
	}
	return all
}

// take takes the debt of a zone's key, if it has one.
func (d *debts) take(z *stores.ZoneCheck) (debt, bool) {
	n := memory.TableOf(z.Counter).Snapshots()
	if n == nil || !n.Owing() {
		return debt{}, false
	}
	z.Rules = d.share(z.Counter)
	words := n.Owed(z, d.conn.at(z.Tag).clock.now())
	if words == nil {
		return debt{}, false
	}
	return debt{
		snapshots: n, key: z.Key,
		op:    appendDebts(nil, z, words),
		names: namesOf(d.conn.o.Prefix, z)[:1],
	}, true
}

// settle ends a call that carried debts. It restores those that Redis has
// certainly not charged. A debt that may have been charged is not sent again.
func settle(all []debt, err error) {
	if err == nil || mayHaveRun(err) {
		return
	}
	for _, o := range all {
		o.snapshots.Restore(o.key)
	}
}

// pay charges the debts of keys that no request checks, table by table. Those of a
// node that is away wait for it, and do not keep others waiting.
func (d *debts) pay(ctx context.Context) {
	if !slices.ContainsFunc(d.conn.nodes.all(), d.conn.calls) {
		return
	}
	end := time.Now().Add(payFor)
	for _, c := range d.takeTables() {
		if time.Now().After(end) {
			d.add(&stores.ZoneCheck{Counter: c})
		} else if err := d.payTable(ctx, c, end); err != nil {
			d.add(&stores.ZoneCheck{Counter: c})
			if ctx.Err() == nil {
				d.conn.fail(err)
			}
		}
	}
}

// payTable charges the debts of one table until end.
func (d *debts) payTable(ctx context.Context, c *stores.Counter, end time.Time) error {
	perCall := debtsPerCall
	if d.conn.o.Cluster {
		perCall = 1 // the keys lie in different slots
	}
	later := false
	for from, done := (memory.Cursor{}), false; !done; {
		var keys []stores.Key
		keys, from, done = memory.TableOf(c).Snapshots().Debtors(make([]stores.Key, 0, perCall), from)
		var some []debt
		for _, k := range keys {
			if !d.settled(k) {
				later = true
				continue
			}
			z := stores.ZoneCheck{Counter: c, Key: k, Tag: k}
			if o, ok := d.take(&z); ok {
				some = append(some, o)
			}
		}
		if err := d.send(ctx, some); err != nil && (!d.conn.o.Cluster || ctx.Err() != nil) {
			return err // in a Cluster the next key may lie on another node
		} else if err != nil {
			later = true
		}
		if time.Now().After(end) {
			later = true
			break
		}
	}
	if later { // continues after the next heartbeat
		d.add(&stores.ZoneCheck{Counter: c})
	}
	return nil
}

// send charges debts in one call.
func (d *debts) send(ctx context.Context, some []debt) error {
	if len(some) == 0 {
		return ctx.Err()
	}
	ctx, cancel := d.conn.background(ctx)
	defer cancel()
	var names []string
	var ops [][]byte
	for _, o := range some {
		names, ops = append(names, o.names...), append(ops, o.op)
	}
	err := d.conn.call(ctx, names, ops...)
	settle(some, err)
	return err
}
