package outage

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// failure is why a call failed, and what has become of it.
type failure struct {
	error
	fate Fate
}

// ran says whether a call has run that ended with err, and that becomes known.
func ran(err error) bool {
	f, _ := errors.AsType[failure](err)
	return err == nil || f.fate.Ran
}

// locked is random numbers for several goroutines.
type locked struct {
	sync.Mutex
	from *rand.Rand
}

func (l *locked) Uint64() uint64 {
	l.Lock()
	defer l.Unlock()
	return l.from.Uint64()
}

// bank is a Redis that loses calls and replies, of one store after another. It keeps the account of what was charged
// without it.
type bank struct {
	*rand.Rand
	clock     atomic.Int64
	made      atomic.Int64 // charged without Redis
	charged   atomic.Int64 // of that, in Redis
	uncharged atomic.Int64 // of that, reported
	meanwhile func()       // what happens while a call is under way

	mu      sync.Mutex
	waiting []func() // for what becomes of calls
}

func (b *bank) Usable(stores.Key) bool             { return b.IntN(10) > 0 }
func (b *bank) AnyUsable() bool                    { return b.IntN(10) > 0 }
func (*bank) Pausing() bool                        { return false }
func (*bank) Owed() func()                         { return func() {} }
func (*bank) Unswept(stores.Key)                   {}
func (*bank) ResetAgain(context.Context)           {}
func (*bank) Note(*stores.ZoneCheck, int64, int64) {}
func (*bank) MayHaveRun(err error) bool            { return !errors.Is(err, errRejected) }

func (b *bank) Uncharged(_ string, _ stores.Uncharged, cost int64) { b.uncharged.Add(cost) }

func (b *bank) now() int64 { return b.clock.Add(1) }

func (b *bank) Now(stores.Key) memory.Instant {
	now := b.now()
	return memory.Instant{Local: now, Shared: now + 5, Tolerance: 1e6}
}

// Await says at once or later what has become of a call.
func (b *bank) Await(err error, then func(Fate)) {
	fate := Fate{Known: true}
	if f, ok := errors.AsType[failure](err); ok {
		fate = f.fate
	}
	if b.IntN(3) == 0 {
		then(fate)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, func() { then(fate) })
}

// fails returns how a call fails; nil: it does not.
func fails(r *rand.Rand) error {
	return []error{
		nil, nil, errRejected,
		failure{errUnknown, Fate{}},
		failure{errUnknown, Fate{Known: true}},
		failure{errUnknown, Fate{Known: true, Ran: true, Charged: []bool{true}}},
	}[r.IntN(6)]
}

// end ends a call that handed over some keys.
func (b *bank) end(some []Handover, err error) {
	for i := range some {
		if ran(err) {
			b.charged.Add(some[i].Cost)
		}
	}
}

// HandOver may be answered for some keys only, and refuse each.
func (b *bank) HandOver(_ context.Context, some []Handover) (r Reply, err error) {
	b.meanwhile()
	answered := len(some)
	if err = fails(b.Rand); err != nil {
		answered = b.IntN(answered + 1)
	}
	for i := range some[:answered] {
		of := Outcome{}
		switch b.IntN(8) {
		case 0:
			of.Refused = PartDebts
		case 1:
			of.Err = fails(b.Rand)
		}
		if of.Refused == 0 {
			b.end(some[i:i+1], of.Err)
		}
		r.Keys = append(r.Keys, of)
	}
	b.end(some[answered:], err)
	r.Time = b.Now(stores.Key{})
	return r, err
}

// running is what a process uses, until it is replaced.
type running struct {
	*bank
	t    *testing.T
	spec storekit.RuleSpec
	f    atomic.Pointer[Fallback]
	c    atomic.Pointer[stores.Counter]
	turn sync.Mutex // of what replaces them
}

func newRunning(t *testing.T, r *rand.Rand, a algorithms.Algorithm) *running {
	t.Helper()
	all := &running{bank: &bank{Rand: rand.New(&locked{from: r}), meanwhile: func() {}}, t: t}
	all.spec = storekit.RuleSpec{Alg: a, Spec: algorithms.Spec{Limit: 1000, Window: 1000 * storekit.Hour, Cost: 1}}
	all.clock.Store(storekit.Hour / 2)
	all.f.Store(all.store())
	all.c.Store(all.zone())
	return all
}

func (a *running) store() *Fallback {
	return New(Options{Local: true, ShareOf: func() int64 { return 1e6 }, Clock: a.now}, a.bank, new(memory.Permits))
}

// zone returns a zone that has mostly not enough room for all keys.
func (a *running) zone() *stores.Counter {
	c := kit.NewTestCounter(a.t, "z", 0, false, nil, a.spec)
	c.Table = memory.NewTable(c.Rules, 1+a.Int64N(6))
	return c
}

// account leads five keys of a zone through what changes what they owe.
type account struct {
	*running
	*rand.Rand                     // its own, so that goroutines do not wait for each other
	admitted   []*stores.ZoneCheck // without Redis
	calls      []func()            // that are under way, by how each ends
	paying     bool
	did        []string
}

func (a *account) check() *stores.Check {
	k := key(a.Uint64N(5))
	return &stores.Check{Zones: []stores.ZoneCheck{{Counter: a.c.Load(), Subject: stores.Subject{Key: k, Tag: k}, Cost: 1 + a.Int64N(3)}}}
}

func (a *account) decide() {
	check, err := a.check(), fails(a.Rand)
	if a.f.Load().Decide(check, err); check.Admitted {
		a.charge(check.Zones[0].Cost, err)
		a.admitted = append(a.admitted, &check.Zones[0])
	}
}

// charge notes a charge whose call failed with err; nil: there was none.
func (a *account) charge(cost int64, err error) {
	if a.made.Add(cost); err != nil && ran(err) {
		a.charged.Add(cost)
	}
}

// finish charges a response without Redis, or because Redis could not.
func (a *account) finish() {
	if len(a.admitted) == 0 {
		return
	}
	z, cost, err := a.admitted[a.IntN(len(a.admitted))], 1+a.Int64N(3), fails(a.Rand)
	if a.charge(cost, err); err == nil {
		a.f.Load().Finish(z, cost)
		return
	}
	a.f.Load().Settle(z, cost, err)
}

// leave sends a check with what its key owes.
func (a *account) leave() {
	check, f := a.check(), a.f.Load()
	f.Look(check, a.now())
	some := f.Hands.TakeAll(check, a.Now(stores.Key{}))
	a.calls = append(a.calls, func() {
		err := fails(a.Rand)
		a.end(some, err)
		f.Hands.EndCall(some, err)
	})
}

// arrive ends one of the calls under way.
func (a *account) arrive() {
	if n := len(a.calls); n > 0 {
		i := a.IntN(n)
		end := a.calls[i]
		a.calls = slices.Delete(a.calls, i, i+1)
		end()
	}
}

// isKnown says what has become of a call.
func (b *bank) isKnown() (more bool) {
	b.mu.Lock()
	n := len(b.waiting)
	if n == 0 {
		b.mu.Unlock()
		return false
	}
	i := b.IntN(n)
	then := b.waiting[i]
	b.waiting = slices.Delete(b.waiting, i, i+1)
	b.mu.Unlock()
	then()
	return true
}

func (a *account) pay() {
	if !a.paying {
		a.paying = true
		a.f.Load().Hands.Pay(a.t.Context())
		a.paying = false
	}
}

// learn has Redis report what others were charged.
func (a *account) learn() {
	if c := a.c.Load(); !grows(c) {
		a.f.Load().learn(c, key(a.Uint64N(5)), 1+a.Int64N(9))
	}
}

func grows(c *stores.Counter) bool {
	_, grows := c.Rules[0].(algorithms.Growing)
	return grows
}

func (a *account) reset() {
	a.f.Load().Hands.Reset([]*stores.Counter{a.c.Load()}, key(a.Uint64N(5)))
}

func (a *account) replace() {
	a.turn.Lock()
	defer a.turn.Unlock()
	_ = memory.TableOf(a.c.Swap(a.zone())).Destruct()
}

func (a *account) passOn() {
	a.turn.Lock()
	defer a.turn.Unlock()
	next := a.store()
	before := a.f.Swap(next).Hands
	before.PassOn(next.Hands)
	before.Close()
}

func (a *account) step() {
	events := []struct {
		often int
		name  string
		do    func()
	}{
		{6, "decide", a.decide},
		{3, "finish", a.finish},
		{4, "leave", a.leave},
		{4, "arrive", a.arrive},
		{2, "is known", func() { a.isKnown() }},
		{2, "pay", a.pay},
		{2, "learn", a.learn},
		{2, "reset", a.reset},
		{1, "replace", a.replace},
		{1, "pass on", a.passOn},
	}
	n := a.IntN(27)
	for i := range events {
		if e := &events[i]; n < e.often {
			a.did = append(a.did, e.name)
			e.do()
			return
		}
		n -= events[i].often
	}
}

// close ends what is under way, and closes the last store. Then all is charged in Redis, or reported.
func (a *account) close(how string) {
	a.meanwhile = func() {}
	for len(a.calls) > 0 {
		a.arrive()
	}
	for a.isKnown() {
	}
	a.f.Load().Hands.Close()
	if made, charged, told := a.made.Load(), a.charged.Load(), a.uncharged.Load(); made != charged+told {
		a.t.Fatalf("%s: %d were charged without Redis, then %d in Redis, and %d are reported: %v", how, made, charged, told, a.did)
	}
}

var accountable = []algorithms.Algorithm{&algorithms.FixedWindow{}, &algorithms.SlidingLog{}, &algorithms.SlidingWindow{}}

// TestAccountOfCharges leads keys through random charges without Redis, handovers, and what may meet them: calls that
// fail, resets, tables that are full or replaced, reloads. In the end each charge is made in Redis, or reported.
func TestAccountOfCharges(t *testing.T) {
	r := storekit.Seeded(t)
	for n := range storekit.Operations(t) / 8 {
		alg := accountable[n%len(accountable)]
		a := &account{running: newRunning(t, r, alg), Rand: r}
		a.meanwhile = func() {
			for range a.IntN(3) {
				a.step()
			}
		}
		for range 40 {
			a.step()
		}
		a.close(alg.Kind())
	}
}

// TestAccountOfConcurrentCharges does the same in several goroutines.
func TestAccountOfConcurrentCharges(t *testing.T) {
	r := storekit.Seeded(t)
	for n := range storekit.Operations(t) / 8 {
		alg := accountable[n%len(accountable)]
		all := newRunning(t, r, alg)
		last := &account{running: all, Rand: r}
		var done sync.WaitGroup
		for range 4 {
			a := &account{running: all, Rand: rand.New(rand.NewPCG(all.Uint64(), 0))}
			done.Go(func() {
				for range 25 {
					a.step()
				}
				for len(a.calls) > 0 {
					a.arrive()
				}
			})
		}
		done.Wait()
		last.close(alg.Kind())
	}
}
