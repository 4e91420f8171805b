package stores

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"
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
func (f OnFailure) Mode() Mode { return [...]Mode{ModeAlone, ModeAllow, ModeDeny}[f] }

// SharedOptions say how a [Shared] store behaves beside its connection.
type SharedOptions struct {
	RedisOptions

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

// Watcher is told what happens to a store. Its methods return at once.
type Watcher interface {
	// StoreUp is called when Redis is asked again.
	StoreUp(name string)

	// StoreDown is called when Redis is no longer asked.
	StoreDown(name string, f Failure, cause error)

	// StoreError counts a failed call.
	StoreError(name string, f Failure, err error)

	// ClockSteps counts states that were mended after a step of Redis' clock.
	ClockSteps(name string)

	// StoreAdvice tells what is wrong with a Redis that works, and what to do
	// about it.
	StoreAdvice(name, what, advice string)

	// Live is called when the number of live instances changes.
	Live(name string, instances int)
}

// Shared keeps the counts in Redis, where all instances share them. No call
// takes longer than the timeout. While Redis is away the instance goes on
// alone, and finds it again by itself.
type Shared struct {
	o       SharedOptions
	conn    *conn
	breaker *breaker
	watcher atomic.Pointer[Watcher]
	start   sync.Once
	id      uint64 // this instance
	holdSeq atomic.Uint64
	live    atomic.Int64 // instances; 0: never seen
	fewer   time.Time    // since when fewer are counted; zero: they are not
	places  heldPlaces
	denials *denials // nil: none are remembered
	leases  *leases  // nil: none are asked for
	debts   debtors
	time    *timeline
	back    atomic.Int64 // when Redis came back, by our clock; 0: all keys are asked of it
	stop    context.CancelFunc
	hearing atomic.Pointer[context.CancelFunc] // ends the connection that messages come by
	unheard atomic.Int64                       // when that was last done
	done    sync.WaitGroup
}

// NewShared returns a store that has not yet reached out.
func NewShared(o SharedOptions, w Watcher) *Shared {
	s := &Shared{o: o, id: randomWord(), time: &timeline{clock: o.Clock}, denials: new(denials)}
	if o.Lease > 0 {
		s.leases = &leases{lasts: o.Lease.Microseconds()}
	}
	s.Watch(w)
	s.breaker = newBreaker(func(up bool, cause error) {
		if up {
			s.back.Store(o.Clock())
			s.watch().StoreUp(o.Name)
		} else {
			s.watch().StoreDown(o.Name, classify(cause), cause)
		}
	})
	s.places.held = make(map[uint64]string)
	return s
}

// Start begins to look for Redis in the background, if that was not done yet.
// It does not wait for it. live is how many instances were last seen, or 0.
func (s *Shared) Start(live int) {
	if live > 0 { // also after a request has come first
		s.live.CompareAndSwap(0, int64(live))
	}
	s.start.Do(func() {
		s.conn = newConn(&s.o.RedisOptions, s.time)
		s.conn.stopped, s.conn.report = s.breaker.open.Load, s.fail
		ctx, stop := context.WithCancel(context.Background())
		s.stop = stop
		s.done.Go(func() { s.tend(ctx) })
		s.done.Go(func() { s.listen(ctx) })
	})
}

// Watch changes who is told what happens.
func (s *Shared) Watch(w Watcher) { s.watcher.Store(&w) }

func (s *Shared) watch() Watcher { return *s.watcher.Load() }

// State says whether Redis is being asked, and since when that is so.
func (s *Shared) State() (up bool, since time.Time) { return s.breaker.state() }

// Name is the store's name.
func (s *Shared) Name() string { return s.o.Name }

// OnFailure says what becomes of requests while Redis is away.
func (s *Shared) OnFailure() OnFailure { return s.o.OnFailure }

// Timeout is the longest that a decision takes.
func (s *Shared) Timeout() time.Duration { return s.o.Timeout }

// Lease is for how long hot keys are charged in advance, in microseconds; 0: they
// are not.
func (s *Shared) Lease() int64 { return s.o.Lease.Microseconds() }

// Clustered says whether keys are spread over a Redis Cluster.
func (s *Shared) Clustered() bool { return s.o.Cluster }

// At is the store as far as one key is concerned: in a Redis Cluster keys lie
// in slots, and only those of one slot are decided in one call.
func (s *Shared) At(tag Key) Store {
	if s.o.Cluster {
		return slot{s, tag}
	}
	return s
}

// slot is the part of a cluster where the keys of one tag lie.
type slot struct {
	*Shared
	tag Key
}

// Instances is how many live instances were last seen, 0 if none ever was.
func (s *Shared) Instances() int64 { return s.live.Load() }

// Destruct closes the connections, once no request holds a place through them.
// It implements caddy.Destructor.
func (s *Shared) Destruct() error {
	s.start.Do(func() {}) // what was never started is not started any more
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.done.Wait()
	if s.places.any() {
		go s.linger()
		return nil
	}
	return s.conn.client.Close()
}

// Decide implements [Store].
func (s *Shared) Decide(ctx context.Context, a *Ask) {
	s.Start(0)
	if s.leases == nil || !s.lease(ctx, a) {
		s.decideUnleased(ctx, a)
	}
}

// decideUnleased decides with nothing in hand.
func (s *Shared) decideUnleased(ctx context.Context, a *Ask) {
	unknown := false
	if s.asks(a) {
		if s.denied(a) {
			return
		}
		sent, epoch := s.o.Clock(), s.epoch()
		err := s.decide(ctx, a)
		if err == nil {
			s.remember(a, sent, epoch)
			s.breaker.success()
			return
		}
		unknown = mayHaveRun(err)
		s.fail(err)
	}
	switch s.o.OnFailure {
	case FailAllow:
		s.unjudged(a, ModeAllow, true)
	case FailDeny:
		s.unjudged(a, ModeDeny, false)
	default:
		s.alone(a, unknown)
	}
}

func (s *Shared) fail(err error) {
	if errors.As(err, new(reported)) || errors.Is(err, errOpen) {
		return // it was counted with the call that failed
	}
	f := classify(err)
	s.denials.drop()
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
func (s *Shared) unjudged(a *Ask, m Mode, admit bool) {
	a.Mode, a.Admitted, a.Turn, a.Now = m, true, 0, s.o.Clock()
	for i := range a.Items {
		it := &a.Items[i]
		it.Rules, it.Results = nil, it.Results[:0]
		it.Admits, it.Charged, it.Full, it.hold = admit, false, false, hold{}
		a.Admitted = a.Admitted && (admit || it.Shadow)
	}
}

// end is when a caller leaves: after the timeout, or earlier if it wants so. A
// client that goes away does not end a call: what it asked for is charged.
func (s *Shared) end(ctx context.Context) time.Time {
	end := time.Now().Add(s.o.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	return end
}

// decide asks Redis.
func (s *Shared) decide(ctx context.Context, a *Ask) error {
	owes := s.takeDebts(a)
	for i := range a.Items {
		it := &a.Items[i]
		it.Rules = it.Counter.Rules
	}
	a.room()
	for i := range a.Items {
		it := &a.Items[i]
		if place, _ := it.holds(); place && !a.Look {
			it.hold.id = s.id ^ s.holdSeq.Add(1)
		}
	}
	q := newQuestion(s.end(ctx), a.Items[0].Tag)
	for _, o := range owes {
		q.add(o.names, o.ask)
	}
	q.decide(s.conn.prefix, a)
	r, now, err := s.ask(q)
	settled(owes, err)
	if err == nil {
		for range owes {
			r.byte()
		}
		err = s.read(a, &r, now)
	}
	s.keepPlaces(a, err)
	return err
}

// ask asks a question, which is not used any more after it.
func (s *Shared) ask(q *question) (r reply, now int64, err error) {
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
func (s *Shared) read(a *Ask, r *reply, now int64) error {
	a.Mode, a.Now = ModeShared, now
	for i := range a.Items {
		stepped, err := r.readZone(&a.Items[i], now)
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
	a.settle()
	for i := range a.Items {
		it := &a.Items[i]
		countResults(it, now, a.turn(it))
		if n := tableOf(it.Counter).notes(); n != nil && s.o.OnFailure == FailLocal {
			n.learn(it, now)
		}
	}
	return nil
}

// Finish implements [Store].
func (s *Shared) Finish(ctx context.Context, it *Item, charge int64) {
	switch {
	case it.hold.lease != 0:
		s.finishLeased(it, charge)
	case it.hold.mode == ModeAlone:
		s.finishAlone(it, charge)
	case it.hold.taken:
		it.hold.taken = it.keepsPlace(charge)
		s.release(ctx, it, charge)
	case charge > 0 && it.Charged:
		// Nothing tells whether a charge that was not answered was made, so it
		// is made once.
		if err := s.finish(ctx, finishOf(s.conn.prefix, it, charge)); err != nil {
			s.fail(err)
		}
	}
}

// finishing is a call that ends one request's place.
type finishing struct {
	tag  Key
	keys []string
	ask  []byte
}

func finishOf(prefix string, it *Item, charge int64) finishing {
	op := byte(opFinish)
	if it.keepsPlace(charge) {
		op = opKeep
	}
	keys := namesOf(prefix, it)
	return finishing{it.Tag, keys, appendZone([]byte{op, byte(len(keys))}, it, charge)}
}

func (s *Shared) finish(ctx context.Context, f finishing) error {
	if s.breaker.open.Load() {
		return errOpen
	}
	q := newQuestion(s.end(ctx), f.tag)
	q.add(f.keys, f.ask)
	_, _, err := s.ask(q)
	return err
}

// beat tells Redis that this instance lives, and learns how many do.
func (s *Shared) beat(ctx context.Context) error {
	n, err := s.count(ctx)
	if err == nil {
		s.countLive(n, time.Now())
	}
	return err
}

// count asks Redis how many instances live, this one among them.
func (s *Shared) count(ctx context.Context) (int64, error) {
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
func (s *Shared) countLive(n int64, now time.Time) {
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

var _ Store = (*Shared)(nil)
