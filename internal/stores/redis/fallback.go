package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// Going on without Redis, and coming back. An instance enforces its share of
// every limit alone, beginning with its share of what Redis last said of a key.
// What it admits meanwhile is charged in Redis with the key's first ask there,
// or, if none comes, in the background.

// ramp is how long it takes until all keys are asked of Redis again.
const ramp = 500 * time.Millisecond

// What keys owe that nobody asks for is charged in calls of debtsPerCall keys,
// for payFor after a heartbeat, so that requests and the heartbeat hardly notice.
const (
	debtsPerCall = 32
	payFor       = 200 * time.Millisecond
)

// asks says whether Redis is to be asked now. After an outage more and more keys
// are, always the same ones first: a key that changed to and fro would have two
// limits.
func (s *Store) asks(check *stores.Check) bool {
	if s.conn == nil || s.breaker.open.Load() {
		return false
	}
	back := s.back.Load()
	if back == 0 || s.o.OnFailure != FailLocal {
		return true
	}
	elapsed := s.o.Clock() - back
	if elapsed >= ramp.Microseconds() {
		s.back.CompareAndSwap(back, 0)
		return true
	}
	for i := range check.Zones {
		if int64(check.Zones[i].Key.Lo>>44)*ramp.Microseconds() >= elapsed<<20 {
			return false
		}
	}
	return true
}

// share is this instance's part of the counter's rules.
func (s *Store) share(c *stores.Counter) []algorithms.Rule {
	of := s.o.ShareOf
	if of == 0 {
		of = max(1, s.live.Load()) * 1e6
	}
	return shareOf(c, of)
}

// alone decides by this process' own counts, with its share of every limit.
// unknown says that Redis may have charged the ask, though it did not answer.
func (s *Store) alone(check *stores.Check, unknown bool) {
	now := s.time.now()
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules = s.share(z.Counter)
		s.warm(z, now)
	}
	memory.Decide(check, s.time.now)
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

// warm prepares an item for being counted alone.
func (s *Store) warm(z *stores.ZoneCheck, now int64) {
	if n := memory.TableOf(z.Counter).Snapshots(); n != nil && n.Warm(z, now) {
		s.debts.add(z)
	}
}

// finishAlone ends a request that was decided alone. What it is charged now is
// owed, too.
func (s *Store) finishAlone(z *stores.ZoneCheck, charge int64) {
	if charge > 0 {
		s.warm(z, s.time.now())
	}
	memory.Finish(z, s.time.now, charge)
}

// mayHaveRun says whether a call that failed may have been, or may still be,
// carried out by Redis.
func mayHaveRun(err error) bool {
	var answered goredis.Error
	var dial unopened
	var hung hungUp
	switch {
	case errors.Is(err, errReply):
		return true
	case errors.Is(err, errOpen), errors.Is(err, errUnsent), errors.Is(err, errLate), errors.Is(err, goredis.ErrPoolTimeout), errors.Is(err, goredis.ErrPoolExhausted), errors.Is(err, goredis.ErrClosed):
		return false
	case errors.As(err, &answered):
		return false
	case errors.As(err, &dial), errors.As(err, &hung):
		return false
	}
	return true
}

// payment is a key's debt on its way to Redis.
type payment struct {
	notes *memory.Snapshots
	key   stores.Key
	ask   []byte
	names []string
}

// takeDebt takes what an item owes, if anything.
func (s *Store) takeDebt(z *stores.ZoneCheck) (payment, bool) {
	n := memory.TableOf(z.Counter).Snapshots()
	if n == nil || !n.Owing() {
		return payment{}, false
	}
	z.Rules = s.share(z.Counter)
	debts := n.Owed(z, s.time.now())
	if debts == nil {
		return payment{}, false
	}
	return payment{
		notes: n, key: z.Key,
		ask:   appendDebts(nil, z, debts),
		names: namesOf(s.conn.prefix, z)[:1],
	}, true
}

// takeDebts takes what an ask's items owe, to be charged in one call with the ask
// itself.
func (s *Store) takeDebts(check *stores.Check) (owes []payment) {
	for i := range check.Zones {
		if o, ok := s.takeDebt(&check.Zones[i]); ok {
			owes = append(owes, o)
		}
	}
	return owes
}

// settled ends a call that carried debts. Those that Redis has certainly not
// charged are owed again; whatever it may have is not charged twice.
func settled(owes []payment, err error) {
	if err == nil || mayHaveRun(err) {
		return
	}
	for _, o := range owes {
		o.notes.Restore(o.key)
	}
}

// debtors are the tables in which keys may owe.
type debtors struct {
	mu     sync.Mutex
	tables map[*memory.Table]*stores.Counter
}

// add remembers the item's table. What is counted beside a zone's key has names
// that cannot be told from the key alone: it owes until it is asked for.
func (d *debtors) add(z *stores.ZoneCheck) {
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

// take returns the tables, which are then forgotten.
func (d *debtors) take() map[*memory.Table]*stores.Counter {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tables
	d.tables = nil
	return t
}

// payDebts charges, table by table, what keys still owe that nobody asks for.
func (s *Store) payDebts(ctx context.Context) {
	if s.back.Load() != 0 && s.o.Clock()-s.back.Load() < ramp.Microseconds() {
		return
	}
	end := time.Now().Add(payFor)
	for _, c := range s.debts.take() {
		if time.Now().After(end) {
			s.debts.add(&stores.ZoneCheck{Counter: c})
		} else if err := s.payTable(ctx, c, end); err != nil {
			s.debts.add(&stores.ZoneCheck{Counter: c})
			if ctx.Err() == nil {
				s.fail(err)
			}
		}
	}
}

// payTable charges what the keys of one table owe, until the time is up.
func (s *Store) payTable(ctx context.Context, c *stores.Counter, end time.Time) error {
	perCall := debtsPerCall
	if s.o.Cluster {
		perCall = 1 // their keys lie in different slots
	}
	for from, done := (memory.Cursor{}), false; !done; {
		var keys []stores.Key
		keys, from, done = memory.TableOf(c).Snapshots().Debtors(make([]stores.Key, 0, perCall), from)
		var owes []payment
		for _, k := range keys {
			z := stores.ZoneCheck{Counter: c, Key: k, Tag: k}
			if o, ok := s.takeDebt(&z); ok {
				owes = append(owes, o)
			}
		}
		if err := s.pay(ctx, owes); err != nil {
			return err
		}
		if time.Now().After(end) {
			s.debts.add(&stores.ZoneCheck{Counter: c}) // goes on after the next heartbeat
			break
		}
	}
	return nil
}

func (s *Store) pay(ctx context.Context, owes []payment) error {
	if len(owes) == 0 {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.o.Timeout, beatTimeout))
	defer cancel()
	var names []string
	var asks [][]byte
	for _, o := range owes {
		names, asks = append(names, o.names...), append(asks, o.ask)
	}
	_, err := s.conn.call(ctx, names, asks...)
	settled(owes, err)
	return err
}

// appendDebts appends an ask that charges debts, each behind its rule's
// arguments.
func appendDebts(b []byte, z *stores.ZoneCheck, debts [][]int64) []byte {
	p := &prepare(z.Counter).packed
	b = append(b, opOwe, 1, byte(len(z.Counter.Rules)), 0, holdNothing)
	b = appendBool(b, p.logs)
	b = appendNumber(b, 1)
	b = append(b, p.sizes...)
	for i, r := range z.Counter.Rules {
		b = append(b, z.Counter.Codes[i])
		for _, v := range r.Args() {
			b = appendNumber(b, v)
		}
		for _, v := range debts[i] {
			b = appendNumber(b, v)
		}
	}
	return b
}
