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

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/observers"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/stores"
)

// Store counts in Redis. No decision takes longer than the timeout. While Redis
// is unavailable it decides as Options.OnFailure says and reconnects in the
// background.
type Store struct {
	o         *Options
	conn      *conn
	observer  *observer
	permits   *permits
	renewals  *renewals
	outages   *outages
	fallback  *outage.Fallback
	decider   *decider
	leasing   *leasing // nil: nothing is leased
	past      *pastResets
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
func New(options Options, to stores.Observer) *Store {
	o, told := &options, &observer{name: options.Name}
	told.set(to)
	o.Held, o.Seen = cmp.Or(o.Held, new(memory.Permits)), cmp.Or(o.Seen, new(Seen))
	p := newPermits(o.Prefix, o.Held, o.Clock)
	c := newConn(&o.ConnOptions, o.Clock, told, p)
	said, leased := &recent{lasts: saidLasts}, newLeases(o.Lease)
	past := &pastResets{o: o, conn: c, recent: said, leases: leased}
	away := &outages{o: o, conn: c, permits: p, past: past}
	f := outage.New(outage.Options{
		Local: o.OnFailure == stores.FailLocal, ShareOf: o.share, Clock: o.Clock, Clustered: o.Cluster,
	}, away, o.Held)
	d := &decider{o: o, conn: c, recent: said, fallback: f, permits: p}
	i := &instances{conn: c, process: cmp.Or(o.Process, c.instance), fleet: o.Fleet, live: o.Seen, lost: func(older bool) {
		past.lost(older)
		f.Hands.LostMemory()
	}}
	figures := &figures{o: o, conn: c, instance: i.process, wake: make(chan struct{}, 1)}
	return &Store{
		o: o, conn: c, observer: told, permits: p, renewals: &renewals{conn: c, permits: p, settle: f.Settle},
		outages: away, fallback: f, decider: d, leasing: leasingOf(d, leased), past: past, instances: i, figures: figures,
		resets:  &resets{o: o, conn: c, hands: f.Hands, past: past, watched: figures.watched},
		lingers: lingers,
	}
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
		s.done.Go(func() { s.renewals.run(ctx) })
		s.done.Go(func() { s.resets.subscribe(ctx) })
		s.done.Go(func() { s.figures.run(ctx) })
	})
}

// Begin tells a store that was not started yet which nodes the earlier store of its name has reported as unavailable.
// The first heartbeat that such a node answers reports that it is available.
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

// BeginAs tells a store that was not started yet what another store at the same addresses, of any name, knows of the
// nodes, such as their clocks, by which counts were made without Redis. A node that has lost its memory meanwhile does
// not know this instance any more, which shows the loss.
func (s *Store) BeginAs(other stores.Shared) {
	before, ok := other.(*Store)
	if ok && slices.Equal(s.o.Addresses, before.o.Addresses) {
		s.conn.nodes.beginAs(before.conn.nodes, s.Place() == before.Place())
	}
}

// Decide implements [stores.Store].
func (s *Store) Decide(ctx context.Context, check *stores.Check) {
	s.Start(0)
	if s.leasing == nil || !s.leasing.decide(ctx, check) {
		s.decider.decide(ctx, check)
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

// Adopt notes that the keys of a counter, and of its Overrides, are put back after a loss of Redis' memory, even if no
// request checks them: the table may be older than the counter and this store. If any of these counters has Blocked,
// the caller passes one that has.
func (s *Store) Adopt(c *stores.Counter) {
	s.decider.recent.reset(s.o.Clock()) // what was said of other rules
	s.fallback.Hands.Adopt(c)
}

// ResetLocal clears what this process knows of a key under counters of this
// store.
func (s *Store) ResetLocal(counters []*stores.Counter, k stores.Key) {
	s.resets.resetLocal(counters, k)
	s.past.note(counters, k)
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
	if s.o.OnFailure == stores.FailLocal {
		status.Enforced = min(1, 1e6/float64(s.o.share()))
	}
	if s.leasing != nil {
		leases := s.leasing.leases.stats()
		status.Leases = &leases
	}
	return status
}

// Observe replaces the observer. nil: nobody observes the store.
func (s *Store) Observe(to stores.Observer) {
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
