package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
)

// OnFailure says what becomes of requests while Redis is away.
type OnFailure uint8

// What becomes of requests while Redis is away.
const (
	FailLocal OnFailure = iota // this instance goes on alone, with its share
	FailAllow                  // everything passes
	FailDeny                   // nothing passes
)

// String is the word for it in the configuration.
func (f OnFailure) String() string { return [...]string{"local", "allow", "deny"}[f] }

// Mode says who decides then.
func (f OnFailure) Mode() stores.Mode {
	return [...]stores.Mode{stores.ModeFallback, stores.ModeAllow, stores.ModeDeny}[f]
}

// Options say how a [Shared] store behaves beside its connection.
type Options struct {
	ConnOptions

	// Name is the store's name in logs and metrics.
	Name string

	// OnFailure says what becomes of requests while Redis is away.
	OnFailure OnFailure

	// ShareOf is the number of instances, in millionths, among which the
	// limits are divided while Redis is away. Zero: as many as were last seen.
	ShareOf int64

	// Lease is for how long hot keys are charged in advance; 0: they are not.
	Lease time.Duration

	// Clock is this process' clock, for going on alone.
	Clock func() int64
}

// Observer is told what happens to a store. Its methods return at once.
type Observer interface {
	// StoreUp is called when Redis is asked again.
	StoreUp(name string)

	// StoreDown is called when Redis is no longer asked.
	StoreDown(name string, f Failure, cause error)

	// StoreError counts a failed call.
	StoreError(name string, f Failure, err error)

	// ClockSteps counts states that were mended after a step of Redis' clock.
	ClockSteps(name string)

	// StoreWarning tells what is wrong with a Redis that works, and what to do
	// about it.
	StoreWarning(name, what, advice string)

	// Live is called when the number of live instances changes.
	Live(name string, instances int)
}

// Store keeps the counts in Redis, where all instances share them. No call
// takes longer than the timeout. While Redis is away the instance goes on
// alone, and finds it again by itself.
type Store struct {
	o       Options
	conn    *conn
	breaker *breaker
	watcher atomic.Pointer[Observer]
	start   sync.Once
	id      uint64 // this instance
	holdSeq atomic.Uint64
	live    atomic.Int64 // instances; 0: never seen
	fewer   time.Time    // since when fewer are counted; zero: they are not
	permits permits
	denials *denials // nil: none are remembered
	leases  *leases  // nil: none are asked for
	debts   debtors
	time    *clock
	back    atomic.Int64 // when Redis came back, by our clock; 0: all keys are asked of it
	stop    context.CancelFunc
	hearing atomic.Pointer[context.CancelFunc] // ends the connection that messages come by
	unheard atomic.Int64                       // when that was last done
	done    sync.WaitGroup
}

// New returns a store that has not yet reached out.
func New(o Options, w Observer) *Store {
	s := &Store{o: o, id: rand.Uint64(), time: &clock{clock: o.Clock}, denials: new(denials)}
	if o.Lease > 0 {
		s.leases = &leases{lasts: o.Lease.Microseconds()}
	}
	s.Observe(w)
	s.breaker = newBreaker(func(up bool, cause error) {
		if up {
			s.back.Store(o.Clock())
			s.watch().StoreUp(o.Name)
		} else {
			s.watch().StoreDown(o.Name, classify(cause), cause)
		}
	})
	s.permits.held = make(map[uint64]string)
	return s
}

// Start begins to look for Redis in the background, if that was not done yet.
// It does not wait for it. live is how many instances were last seen, or 0.
func (s *Store) Start(live int) {
	if live > 0 { // also after a request has come first
		s.live.CompareAndSwap(0, int64(live))
	}
	s.start.Do(func() {
		s.conn = newConn(&s.o.ConnOptions, s.time)
		s.conn.stopped, s.conn.report = s.breaker.open.Load, s.fail
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		s.done.Go(func() { s.tend(ctx) })
		s.done.Go(func() { s.listen(ctx) })
	})
}

// Observe changes who is told what happens.
func (s *Store) Observe(w Observer) { s.watcher.Store(&w) }

func (s *Store) watch() Observer { return *s.watcher.Load() }

// State says whether Redis is being asked, and since when that is so.
func (s *Store) State() (up bool, since time.Time) { return s.breaker.state() }

// Name is the store's name.
func (s *Store) Name() string { return s.o.Name }

// OnFailure says what becomes of requests while Redis is away.
func (s *Store) OnFailure() OnFailure { return s.o.OnFailure }

// Timeout is the longest that a decision takes.
func (s *Store) Timeout() time.Duration { return s.o.Timeout }

// Lease is for how long hot keys are charged in advance, in microseconds; 0: they
// are not.
func (s *Store) Lease() int64 { return s.o.Lease.Microseconds() }

// Clustered says whether keys are spread over a Redis Cluster.
func (s *Store) Clustered() bool { return s.o.Cluster }

// At is the store as far as one key is concerned: in a Redis Cluster keys lie
// in slots, and only those of one slot are decided in one call.
func (s *Store) At(tag stores.Key) stores.Store {
	if s.o.Cluster {
		return slot{s, tag}
	}
	return s
}

// slot is the part of a cluster where the keys of one tag lie.
type slot struct {
	*Store
	tag stores.Key
}

// Instances is how many live instances were last seen, 0 if none ever was.
func (s *Store) Instances() int64 { return s.live.Load() }

// Destruct closes the connections, once no request holds a place through them.
// It implements caddy.Destructor.
func (s *Store) Destruct() error {
	s.start.Do(func() {}) // what was never started is not started any more
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.done.Wait()
	if s.permits.any() {
		go s.linger()
		return nil
	}
	return s.conn.client.Close()
}

// Decide implements [Store].
func (s *Store) Decide(ctx context.Context, check *stores.Check) {
	s.Start(0)
	if s.leases == nil || !s.lease(ctx, check) {
		s.decideUnleased(ctx, check)
	}
}

// decideUnleased decides with nothing in hand.
func (s *Store) decideUnleased(ctx context.Context, check *stores.Check) {
	unknown := false
	if s.asks(check) {
		if s.denied(check) {
			return
		}
		sent, epoch := s.o.Clock(), s.epoch()
		err := s.decide(ctx, check)
		if err == nil {
			s.remember(check, sent, epoch)
			s.breaker.success()
			return
		}
		unknown = mayHaveRun(err)
		s.fail(err)
	}
	switch s.o.OnFailure {
	case FailAllow:
		s.unjudged(check, stores.ModeAllow, true)
	case FailDeny:
		s.unjudged(check, stores.ModeDeny, false)
	default:
		s.alone(check, unknown)
	}
}

func (s *Store) fail(err error) {
	if errors.As(err, new(reported)) || errors.Is(err, errOpen) {
		return // it was counted with the call that failed
	}
	f := classify(err)
	s.denials.clear()
	s.watch().StoreError(s.o.Name, f, err)
	if err == errUnsent || err == errUnanswered { //nolint:errorlint // they are never wrapped
		return // the call that it waited for tells how Redis is
	}
	if f == FailAway || f == FailTimeout {
		s.unhear()
	}
	s.conn.failed(f)
	s.breaker.failure(f, err)
}

// unjudged answers without having counted anything.
func (s *Store) unjudged(check *stores.Check, m stores.Mode, admit bool) {
	check.Mode, check.Admitted, check.Turn, check.Now = m, true, 0, s.o.Clock()
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules, z.Results = nil, z.Results[:0]
		z.Admits, z.Charged, z.Full, z.Permit = admit, false, false, stores.Permit{}
		check.Admitted = check.Admitted && (admit || z.Shadow)
	}
}

// end is when a caller leaves: after the timeout, or earlier if it wants so. A
// client that goes away does not end a call: what it asked for is charged.
func (s *Store) end(ctx context.Context) time.Time {
	end := time.Now().Add(s.o.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	return end
}

// decide asks Redis.
func (s *Store) decide(ctx context.Context, check *stores.Check) error {
	owes := s.takeDebts(check)
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules = z.Counter.Rules
	}
	check.ResetResults()
	for i := range check.Zones {
		z := &check.Zones[i]
		if place, _ := z.Holds(); place && !check.Peek {
			z.Permit.ID = s.id ^ s.holdSeq.Add(1)
		}
	}
	q := newCall(s.end(ctx), check.Zones[0].Tag)
	for _, o := range owes {
		q.add(o.names, o.ask)
	}
	q.decide(s.conn.prefix, check)
	r, now, err := s.ask(q)
	settled(owes, err)
	if err == nil {
		for range owes {
			r.byte()
		}
		err = s.read(check, &r, now)
	}
	s.keepPlaces(check, err)
	return err
}

// ask asks a question, which is not used any more after it.
func (s *Store) ask(q *call) (r reply, now int64, err error) {
	if err = s.conn.ask(q); err == nil {
		r, now = reply{b: q.text}, q.now
		err = r.failed()
	}
	if err != errUnanswered { //nolint:errorlint // it is never wrapped; another call may still read the question then
		q.release()
	}
	return r, now, err
}

// read takes the script's answer.
func (s *Store) read(check *stores.Check, r *reply, now int64) error {
	check.Mode, check.Now = stores.ModeShared, now
	for i := range check.Zones {
		stepped, err := r.readZone(&check.Zones[i], now)
		if errors.Is(err, errDisagree) { // Redis has charged by its own verdict, which stands
			s.watch().StoreError(s.o.Name, FailWrong, err)
		} else if err != nil {
			return err
		}
		if stepped {
			s.watch().ClockSteps(s.o.Name)
		}
	}
	if len(r.b) > 0 {
		return errReply
	}
	check.Settle()
	for i := range check.Zones {
		z := &check.Zones[i]
		countResults(z, now, check.TurnOf(z))
		if n := memory.TableOf(z.Counter).Snapshots(); n != nil && s.o.OnFailure == FailLocal {
			n.Learn(z, now)
		}
	}
	return nil
}

// Finish implements [Store].
func (s *Store) Finish(ctx context.Context, z *stores.ZoneCheck, charge int64) {
	switch {
	case z.Permit.Lease != 0:
		s.finishLeased(z, charge)
	case z.Permit.Mode == stores.ModeFallback:
		s.finishAlone(z, charge)
	case z.Permit.Taken:
		z.Permit.Taken = z.KeepsPermit(charge)
		s.release(ctx, z, charge)
	case charge > 0 && z.Charged:
		// Nothing tells whether a charge that was not answered was made, so it
		// is made once.
		if err := s.finish(ctx, finishOf(s.conn.prefix, z, charge)); err != nil {
			s.fail(err)
		}
	}
}

// release is a call that ends one request's place.
type release struct {
	tag  stores.Key
	keys []string
	ask  []byte
}

func finishOf(prefix string, z *stores.ZoneCheck, charge int64) release {
	op := byte(opFinish)
	if z.KeepsPermit(charge) {
		op = opKeep
	}
	keys := namesOf(prefix, z)
	return release{z.Tag, keys, appendZone([]byte{op, byte(len(keys))}, z, charge)}
}

func (s *Store) finish(ctx context.Context, f release) error {
	if s.breaker.open.Load() {
		return errOpen
	}
	q := newCall(s.end(ctx), f.tag)
	q.add(f.keys, f.ask)
	_, _, err := s.ask(q)
	return err
}

// beat tells Redis that this instance lives, and learns how many do.
func (s *Store) beat(ctx context.Context) error {
	n, err := s.count(ctx)
	if err == nil {
		s.countLive(n, time.Now())
	}
	return err
}

// count asks Redis how many instances live, this one among them.
func (s *Store) count(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.o.Timeout, beatTimeout))
	defer cancel()
	ask := binary.LittleEndian.AppendUint64([]byte{opBeat, 2}, s.id)
	r, err := s.conn.call(ctx, []string{s.conn.prefix + ":{instances}", s.conn.prefix + ":{instances}:try"}, ask)
	if err != nil {
		return 0, err
	}
	r.byte() // nothing failed
	n := int64(r.uint32())
	if r.err != nil {
		return 0, r.err
	}
	return n, nil
}

// believeFewer is for how long fewer instances than before have to be counted
// until that is believed: a Redis that lost its memory counts anew, and shares of
// an outage in that moment would be too large.
const believeFewer = 5 * time.Second

// countLive takes how many instances Redis counts. Only the heartbeat calls it.
func (s *Store) countLive(n int64, now time.Time) {
	was := s.live.Load()
	switch {
	case n >= was:
		s.fewer = time.Time{}
	case s.fewer.IsZero():
		s.fewer = now
		return
	case now.Sub(s.fewer) < believeFewer:
		return
	}
	if n != was {
		s.live.Store(n)
		s.watch().Live(s.o.Name, int(n))
	}
}

var _ stores.Store = (*Store)(nil)
