package outage

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
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

// bank is a Redis that loses calls and replies. It keeps the account of what was charged without it.
type bank struct {
	*rand.Rand
	now       int64
	made      int64 // charged without Redis
	charged   int64 // of that, in Redis
	uncharged map[stores.Uncharged]int64
	waiting   []func() // for what becomes of calls
	meanwhile func()   // what happens while a call is under way
}

func (b *bank) Usable(stores.Key) bool             { return b.IntN(10) > 0 }
func (b *bank) AnyUsable() bool                    { return b.IntN(10) > 0 }
func (*bank) Pausing() bool                        { return false }
func (*bank) Owed() func()                         { return func() {} }
func (*bank) Unswept(stores.Key)                   {}
func (*bank) ResetAgain(context.Context)           {}
func (*bank) Note(*stores.ZoneCheck, int64, int64) {}
func (*bank) MayHaveRun(err error) bool            { return !errors.Is(err, errRejected) }

func (b *bank) Uncharged(_ string, why stores.Uncharged, cost int64) { b.uncharged[why] += cost }

func (b *bank) Now(stores.Key) memory.Instant {
	return memory.Instant{Local: b.now, Shared: b.now + 5, Tolerance: 1e6}
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
	b.waiting = append(b.waiting, func() { then(fate) })
}

// fails returns how a call fails; nil: it does not.
func (b *bank) fails() error {
	return []error{
		nil, nil, errRejected, failure{errUnknown, Fate{}}, failure{errUnknown, Fate{Known: true}},
		failure{errUnknown, Fate{Known: true, Ran: true, Charged: []bool{true}}},
	}[b.IntN(6)]
}

// end ends a call that handed over some keys.
func (b *bank) end(some []Handover, err error) {
	for i := range some {
		if ran(err) {
			b.charged += some[i].Cost
		}
	}
}

// HandOver may be answered for some keys only, and refuse each.
func (b *bank) HandOver(_ context.Context, some []Handover) (r Reply, err error) {
	b.meanwhile()
	answered := len(some)
	if err = b.fails(); err != nil {
		answered = b.IntN(answered + 1)
	}
	for i := range some[:answered] {
		of := Outcome{}
		switch b.IntN(8) {
		case 0:
			of.Refused = PartDebts
		case 1:
			of.Err = b.fails()
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

// account leads five keys of a zone through what changes what they owe.
type account struct {
	*bank
	t        *testing.T
	f        *Fallback
	spec     storekit.RuleSpec
	c        *stores.Counter
	admitted []*stores.ZoneCheck // without Redis
	calls    []func()            // that are under way, by how each ends
	paying   bool
	did      []string
}

func newAccount(t *testing.T, r *rand.Rand, a algorithms.Algorithm) *account {
	t.Helper()
	b := &bank{Rand: r, now: storekit.Hour / 2, uncharged: make(map[stores.Uncharged]int64)}
	acc := &account{bank: b, t: t, spec: storekit.RuleSpec{Alg: a, Spec: algorithms.Spec{Limit: 100, Window: 1000 * storekit.Hour, Cost: 1}}}
	b.meanwhile = func() {
		for range b.IntN(3) {
			acc.step()
		}
	}
	acc.f, acc.c = acc.store(), acc.zone()
	return acc
}

func (a *account) store() *Fallback {
	return New(Options{Local: true, ShareOf: func() int64 { return 1e6 }, Clock: func() int64 { return a.now }}, a.bank, new(memory.Permits))
}

// zone returns a zone that has mostly not enough room for all keys.
func (a *account) zone() *stores.Counter {
	c := kit.NewTestCounter(a.t, "z", 0, false, nil, a.spec)
	c.Table = memory.NewTable(c.Rules, 1+a.Int64N(6))
	return c
}

func (a *account) check() *stores.Check {
	k := key(a.Uint64N(5))
	return &stores.Check{Zones: []stores.ZoneCheck{{Counter: a.c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1 + a.Int64N(3)}}}
}

func (a *account) decide() {
	check, err := a.check(), a.fails()
	if a.f.Decide(check, err); check.Admitted {
		a.charge(check.Zones[0].Cost, err)
		a.admitted = append(a.admitted, &check.Zones[0])
	}
}

// charge notes a charge whose call failed with err; nil: there was none.
func (a *account) charge(cost int64, err error) {
	if a.made += cost; err != nil && ran(err) {
		a.charged += cost
	}
}

// finish charges a response without Redis, or because Redis could not.
func (a *account) finish() {
	if len(a.admitted) == 0 {
		return
	}
	z, cost, err := a.admitted[a.IntN(len(a.admitted))], 1+a.Int64N(3), a.fails()
	if a.charge(cost, err); err == nil {
		a.f.Finish(z, cost)
		return
	}
	a.f.Settle(z, cost, err)
}

// leave sends a check with what its key owes.
func (a *account) leave() {
	check, of := a.check(), a.f.Hands
	a.f.Look(check, a.now)
	some := of.TakeAll(check, a.Now(stores.Key{}))
	a.calls = append(a.calls, func() {
		err := a.fails()
		a.end(some, err)
		of.EndCall(some, err)
	})
}

// oneOf takes one of a list and calls it.
func (a *account) oneOf(list *[]func()) {
	if n := len(*list); n > 0 {
		i := a.IntN(n)
		do := (*list)[i]
		*list = slices.Delete(*list, i, i+1)
		do()
	}
}

func (a *account) pay() {
	if !a.paying {
		a.paying = true
		a.f.Hands.Pay(a.t.Context())
		a.paying = false
	}
}

// learn has Redis report what others were charged.
func (a *account) learn() {
	if _, grows := a.c.Rules[0].(algorithms.Growing); !grows {
		a.f.learn(a.c, key(a.Uint64N(5)), 1+a.Int64N(9))
	}
}

func (a *account) replace() {
	_ = memory.TableOf(a.c).Destruct()
	a.c = a.zone()
}

func (a *account) passOn() {
	before := a.f.Hands
	a.f = a.store()
	before.PassOn(a.f.Hands)
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
		{4, "end", func() { a.oneOf(&a.calls) }},
		{2, "is known", func() { a.oneOf(&a.waiting) }},
		{2, "pay", a.pay},
		{2, "learn", a.learn},
		{2, "reset", func() { a.f.Hands.Reset([]*stores.Counter{a.c}, key(a.Uint64N(5))) }},
		{1, "replace", a.replace},
		{1, "pass on", a.passOn},
	}
	a.now += 1 + a.Int64N(1000)
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

// TestAccountOfCharges leads keys through random charges without Redis, handovers, and what may meet them: calls that
// fail, resets, tables that are full or replaced, reloads. In the end each charge is made in Redis, or reported.
func TestAccountOfCharges(t *testing.T) {
	r := storekit.Seeded(t)
	for range storekit.Operations(t) / 20 {
		for _, alg := range []algorithms.Algorithm{&algorithms.FixedWindow{}, &algorithms.SlidingLog{}, &algorithms.SlidingWindow{}} {
			a := newAccount(t, r, alg)
			for range 40 {
				a.step()
			}
			a.meanwhile = func() {}
			for len(a.calls)+len(a.waiting) > 0 {
				a.oneOf(&a.calls)
				a.oneOf(&a.waiting)
			}
			a.f.Hands.Close()
			told := int64(0)
			for _, cost := range a.uncharged {
				told += cost
			}
			if a.made != a.charged+told {
				t.Fatalf("%s: %d were charged without Redis, then %d in Redis, and %v are reported: %v", alg.Kind(), a.made, a.charged, a.uncharged, a.did)
			}
		}
	}
}
