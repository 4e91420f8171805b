// Package redis counts in Redis, where all instances share the counts. Calls of
// concurrent requests are batched into one script call. While Redis is
// unavailable, this process decides with its share of the limits and what Redis
// last reported; what it charges meanwhile is charged in Redis afterwards.
package redis

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dianalimiter/diana/internal/stores/observers"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
)

// Store counts in Redis. No decision takes longer than the timeout. While Redis
// is unavailable it decides as Options.OnFailure says and reconnects in the
// background.
type Store struct {
	o         Options
	conn      *conn
	observer  *observer
	permits   *permits
	fallback  *outage.Fallback
	outages   *outages
	decider   *decider
	leasing   *leasing // nil: nothing is leased
	resets    *resets
	instances *instances
	figures   *figures
	uses      uses
	lingers   time.Duration // after the last use, once the configuration is replaced

	start sync.Once
	stop  context.CancelFunc // nil until Start
	done  sync.WaitGroup
}

// New returns a store that does not connect before [Store.Start]. to: see [Store.Observe].
func New(o Options, to Observer) *Store {
	s := &Store{o: o, observer: &observer{name: o.Name}, lingers: lingers}
	s.observer.set(to)
	s.conn = newConn(&s.o.ConnOptions, o.Clock, s.observer)
	s.permits = newPermits(s.conn, o.Clock)
	s.permits.held = cmp.Or(o.Held, s.permits.held)
	s.conn.permits = s.permits
	s.instances = &instances{conn: s.conn, process: cmp.Or(o.Process, s.conn.instance), fleet: o.Fleet, live: cmp.Or(o.Seen, new(Seen)), lost: s.lose}
	s.outages = &outages{o: &s.o, conn: s.conn, permits: s.permits}
	s.fallback = outage.New(outage.Options{
		Local: o.OnFailure == FailLocal, ShareOf: s.shareOf, Clock: o.Clock, Clustered: o.Cluster,
	}, s.outages, s.permits.held)
	s.permits.settle = s.fallback.Settle
	s.conn.onBack = func() {
		signal(s.fallback.Hands.Wake) // debts are handed over at once
		s.permits.lose()
	}
	said := &recent{lasts: saidLasts}
	s.decider = &decider{o: &s.o, conn: s.conn, recent: said, fallback: s.fallback, permits: s.permits}
	if o.Lease > 0 {
		s.leasing = &leasing{decider: s.decider, leases: &leases{lasts: o.Lease.Microseconds()}}
	}
	s.figures = &figures{o: &s.o, conn: s.conn, instance: s.instances.process, wake: make(chan struct{}, 1)}
	s.resets = &resets{o: &s.o, conn: s.conn, hands: s.fallback.Hands, recent: said, leasing: s.leasing, watched: s.figures.watched}
	s.outages.resets = s.resets
	s.conn.onLost = s.resets.resubscribe
	return s
}

// Start connects in the background, once. It does not wait. live is how many
// instances were last seen, or 0.
func (s *Store) Start(live int) {
	if live > 0 { // also after a request has called Start(0)
		s.instances.live.CompareAndSwap(0, int64(live))
	}
	s.start.Do(func() {
		s.conn.connect()
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		m := &maintainer{conn: s.conn, instances: s.instances, hands: s.fallback.Hands}
		s.done.Go(func() { m.run(ctx) })
		s.done.Go(func() { s.permits.run(ctx) })
		s.done.Go(func() { s.resets.subscribe(ctx) })
		s.done.Go(func() { s.figures.run(ctx) })
	})
}

// Begin has a store that was not started yet begin in the mode of the one that had its name. Nodes
// that are unavailable were reported, and their first heartbeats will report that they are not.
func (s *Store) Begin(other stores.Shared) {
	before, ok := other.(*Store)
	if !ok {
		return
	}
	_, _, down := before.conn.nodes.state()
	for _, n := range down {
		s.conn.nodes.beginDown(n.Address)
	}
	if slices.Equal(s.o.Addresses, before.o.Addresses) {
		s.conn.nodes.beginAway(before.conn.nodes)
	}
}

// BeginAs has a store that was not started yet begin with what one at the same addresses knows,
// whatever its name. What was counted without Redis is on its clock, as far as that was known. A node
// that has lost its memory meanwhile is known by not knowing this instance.
func (s *Store) BeginAs(other stores.Shared) {
	before, ok := other.(*Store)
	if ok && slices.Equal(s.o.Addresses, before.o.Addresses) {
		s.conn.nodes.beginAs(before.conn.nodes, s.Place() == before.Place())
	}
}

// lose reports all permits and snapshots to Redis again, because Redis did not know this instance.
// known: it did before. Before the first heartbeat it could not.
func (s *Store) lose(known bool) {
	s.permits.lose()
	if known {
		s.fallback.Hands.LostMemory()
	}
}

// Decide implements [stores.Store].
func (s *Store) Decide(ctx context.Context, check *stores.Check) {
	s.Start(0)
	if s.leasing == nil || !s.leasing.decide(ctx, check) {
		s.decider.decide(ctx, check)
	}
}

// Finish implements [stores.Store].
func (s *Store) Finish(ctx context.Context, z *stores.ZoneCheck, charge int64) {
	holds, _ := z.Holds()
	switch {
	case z.Permit.Lease != 0:
		s.leasing.finish(z, charge)
	case z.Permit.Mode == stores.ModeFallback:
		s.fallback.Finish(z, charge)
	case z.Permit.Taken && charge > 0 && !s.conn.usable(z.Tag):
		s.fallback.Settle(z, charge, errOpen)
		s.permits.releaseLater(z, charge)
	case z.Permit.Taken:
		s.permits.release(ctx, z, charge)
	case holds:
		// It was finished before.
	case charge > 0 && z.Charged:
		// It is unknown whether a charge without a reply was made, so it is
		// made once.
		if err := s.permits.finish(ctx, z, charge); err != nil {
			s.conn.fail(err)
			s.fallback.Settle(z, charge, err)
		}
		s.fallback.Ask(z)
	}
}

// At returns the store for the keys of one tag. In a Redis Cluster only keys of
// one slot are decided in one call.
func (s *Store) At(tag stores.Key) stores.Store {
	if s.o.Cluster {
		return slot{s, tag}
	}
	return s
}

// slot is the store for the keys of one tag in a Cluster.
type slot struct {
	*Store
	tag stores.Key
}

// Reset clears a key under all counters of a zone: in this process, in Redis,
// and, by a message, in all other instances.
func (s *Store) Reset(ctx context.Context, zone string, counters []*stores.Counter, k stores.Key) error {
	s.Start(0)
	if err := s.resets.reset(ctx, zone, counters, k); err != nil {
		return advise(classify(err), err)
	}
	return nil
}

// Adopt has what this process knows of the keys of a counter and its Overrides put back after a loss
// of Redis' memory, though none of them is checked: the table may be older than the counter and
// this store. If one of them has Blocked, it is a counter that has.
func (s *Store) Adopt(c *stores.Counter) {
	s.decider.recent.reset(s.o.Clock()) // what was said of other rules
	s.fallback.Hands.Adopt(c)
}

// ResetLocal clears what this process knows of a key under counters of this
// store.
func (s *Store) ResetLocal(counters []*stores.Counter, k stores.Key) {
	s.resets.resetLocal(counters, k)
	s.resets.note(counters, k)
}

// Share returns the limits of a counter that this instance enforces while the store is
// unavailable and on_failure is local.
func (s *Store) Share(c *stores.Counter) stores.Enforced { return s.fallback.Share(c) }

// Status implements [stores.Shared].
func (s *Store) Status() stores.Status {
	up, since, down := s.conn.nodes.state()
	status := stores.Status{
		Name: s.o.Name, Place: s.Place(), OnFailure: s.o.OnFailure, Lease: s.o.Lease.Microseconds(), Clustered: s.o.Cluster,
		Up: up, Since: since, Down: down, Instances: s.Instances(), Readers: max(0, s.Instances()-s.instances.old.Load()), Calls: s.conn.costs.stats(),
	}
	if s.o.OnFailure == FailLocal {
		status.Enforced = min(1, 1e6/float64(s.shareOf()))
	}
	if s.leasing != nil {
		leases := s.leasing.leases.stats()
		status.Leases = &leases
	}
	return status
}

// shareOf returns among how many instances the limits are divided without Redis, in millionths.
func (s *Store) shareOf() int64 { return cmp.Or(s.o.ShareOf, max(1, s.Instances())*1e6) }

// Observe replaces the observer. nil: nobody observes the store.
func (s *Store) Observe(to Observer) {
	s.observer.set(to)
	_, ended := to.(observers.Ended)
	s.fallback.Hands.End(ended)
}

// Name returns the store's name.
func (s *Store) Name() string { return s.o.Name }

// OnFailure says what happens to requests while Redis is unavailable.
func (s *Store) OnFailure() stores.OnFailure { return s.o.OnFailure }

// Timeout is the longest that a decision takes.
func (s *Store) Timeout() time.Duration { return s.o.Timeout }

// Instances returns how many live instances were last seen, 0 if none ever was.
func (s *Store) Instances() int64 { return s.instances.live.Load() }

// Interface guards
var (
	_ stores.Fallback  = (*Store)(nil)
	_ stores.Fleet     = (*Store)(nil)
	_ stores.Kept      = (*Store)(nil)
	_ stores.Observed  = (*Store)(nil)
	_ stores.Shared    = (*Store)(nil)
	_ stores.Slotted   = (*Store)(nil)
	_ stores.Starter   = (*Store)(nil)
	_ stores.Successor = (*Store)(nil)
	_ stores.Timed     = (*Store)(nil)
)
