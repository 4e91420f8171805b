package algotest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
)

// maxWord bounds the words of a state: doubles, which Lua calculates with, are exact to it.
const maxWord = 1 << 53

// arithmetic tests the arithmetic in Go.
func arithmetic(t testing.TB, c *Config) {
	r := storekit.Seeded(t)
	c.rejects(t)
	for _, sp := range c.specs() {
		c.keeps(t, sp)
		for range 20 {
			if err := c.trace(t, r, sp); err != nil {
				t.Fatalf("%+v: %v", sp, err)
			}
		}
		for range 20 {
			if err := c.steps(t, r, sp); err != nil {
				t.Fatalf("%+v: %v", sp, err)
			}
		}
	}
}

// rejects checks that rules which could never admit are rejected.
func (c *Config) rejects(t testing.TB) {
	for _, sp := range []algorithms.Spec{{Limit: 0, Window: 1, Cost: 1}, {Limit: -1, Window: 1, Cost: 1}, {Limit: 1, Window: 0, Cost: 1}, {Limit: 1 << 62, Window: 1, Cost: 1}} {
		if _, err := c.Algorithm.Compile(sp); err == nil {
			t.Errorf("%+v compiles: want an error", sp)
		}
	}
	sp := c.specs()[0]
	sp.Cost = c.compile(t, sp).Capacity() + 1
	if _, err := c.Algorithm.Compile(sp); err == nil {
		t.Errorf("%+v compiles, with a cost above the capacity: want an error", sp)
	}
}

// keeps checks what a rule has in common with the same rule of another limit, whose states
// it has to read, and with the share of an instance.
func (c *Config) keeps(t testing.TB, sp algorithms.Spec) {
	r, kind := c.compile(t, sp), c.Algorithm.Kind()
	more, share := sp, sp
	more.Limit, share.ShareOf = 2*sp.Limit, 2e6
	if kind == "" || kind != c.Algorithm.Kind() {
		t.Errorf("kind %q: want one that is not empty, and stays", kind)
	}
	for _, sp := range []algorithms.Spec{more, share} {
		o := c.compile(t, sp)
		if o.Words() != r.Words() || len(o.Args(start)) != len(r.Args(start)) {
			t.Errorf("%+v: %d words, %d arguments: want as many as with another limit, %d and %d", sp, o.Words(), len(o.Args(start)), r.Words(), len(r.Args(start)))
		}
		if sp.ShareOf > 0 && (o.Limit() < 1 || o.Limit() > max(sp.Cost, sp.Limit/2) || o.Capacity() < sp.Cost) {
			t.Errorf("%+v: a share has a limit of %d and a capacity of %d", sp, o.Limit(), o.Capacity())
		}
	}
	if r.Limit() != sp.Limit || r.Window() != sp.Window {
		t.Errorf("%+v: limit %d, window %d", sp, r.Limit(), r.Window())
	}
}

// forward advances the time, mostly by less than a window, and often to just before, at or
// just after an edge.
func forward(r *rand.Rand, k *key, now int64) int64 {
	switch r.IntN(6) {
	case 0:
		return now
	case 1:
		return now + max(0, k.rule.Window()+r.Int64N(3)-1)
	case 2:
		if v := k.rule.Judge(k.state, now, 1, 0); v.Retry > 0 {
			return now + max(0, v.Retry+r.Int64N(3)-1)
		}
	}
	return now + r.Int64N(k.rule.Window()/2+2)
}

// trace makes random requests and checks every answer, and the bound.
func (c *Config) trace(t testing.TB, r *rand.Rand, sp algorithms.Spec) error {
	k, now := newKey(c.compile(t, sp)), start
	var charges []storekit.Charge
	for range 300 {
		now = forward(r, k, now)
		if k.rule.Repair(k.state, now) {
			return fmt.Errorf("a state was repaired, though the clock was not set back")
		}
		cost := 1 + r.Int64N(k.rule.Capacity()+1)
		if r.IntN(2) == 0 {
			cost = 1
		}
		if err := k.consistent(now, cost, r.Int64N(3)); err != nil {
			return fmt.Errorf("at %d, cost %d: %w", now-start, cost, err)
		}
		if v := k.rule.Judge(k.state, now, cost, 0); v.Admit {
			k.charge(now, cost, v.Delay)
			charges = append(charges, storekit.Charge{At: now, Cost: cost})
		}
	}
	if worst, bound := storekit.WorstWindow(charges, sp.Window), c.Bound(sp); worst > bound {
		return fmt.Errorf("%d were admitted in one window: want at most %d", worst, bound)
	}
	return nil
}

// consistent checks that the answers about one request agree, and that they change nothing.
func (k *key) consistent(now, cost, held int64) error {
	before := slices.Clone(k.state)
	err := k.agree(now, cost, held)
	if !slices.Equal(before, k.state) {
		return fmt.Errorf("Judge or Numbers changed the state %v to %v", before, k.state)
	}
	return err
}

func (k *key) agree(now, cost, held int64) error {
	v, withHeld := k.rule.Judge(k.state, now, cost, 0), k.rule.Judge(k.state, now, cost, held)
	remaining, reset := k.rule.Numbers(k.state, now)
	most, over := k.rule.Judge(k.state, now, max(1, remaining), 0), k.rule.Judge(k.state, now, remaining+1, 0)
	switch {
	case slices.ContainsFunc(k.state, func(w int64) bool { return w > maxWord || w < -maxWord }):
		return fmt.Errorf("state %v: want words below 2^53", k.state)
	case (v.Retry == algorithms.Never) != (cost > k.rule.Capacity()):
		return fmt.Errorf("%+v, with a capacity of %d", v, k.rule.Capacity())
	case v.Admit && (v.Retry != 0 || v.Held) || !v.Admit && (v.Retry == 0 || v.Held):
		return fmt.Errorf("%+v without held cost: want a retry if and only if it is denied", v)
	case withHeld.Admit && !v.Admit || withHeld.Held && (!v.Admit || withHeld.Retry != 0):
		return fmt.Errorf("%+v with %d held, %+v without", withHeld, held, v)
	case remaining < 0 || remaining > k.rule.Capacity() || reset < 0 || remaining > 0 && !most.Admit || over.Admit:
		return fmt.Errorf("remaining %d, reset %d: %+v for as much, %+v for one more", remaining, reset, most, over)
	}
	if v.Retry > 0 {
		if at := k.rule.Judge(k.state, now+v.Retry, cost, 0); !at.Admit {
			return fmt.Errorf("retry %d: %+v then", v.Retry, at)
		}
		if at := k.rule.Judge(k.state, now+v.Retry-1, cost, 0); at.Admit {
			return fmt.Errorf("retry %d: admitted a microsecond before", v.Retry)
		}
	}
	unused := newKey(k.rule)
	full, _ := k.rule.Numbers(unused.state, now+reset)
	if left, after := k.rule.Numbers(k.state, now+reset); left != full || after != 0 {
		return fmt.Errorf("reset %d: then remaining %d, reset %d, want %d and 0", reset, left, after, full)
	}
	return nil
}

// steps sets the clock back and charges debts in a random trace.
func (c *Config) steps(t testing.TB, r *rand.Rand, sp algorithms.Spec) error {
	k, now := newKey(c.compile(t, sp)), start
	longest := longestReset(k.rule)
	_, refills := k.rule.(algorithms.Refilling)
	if refills { // it owes all that it is charged
		longest = math.MaxInt64
	}
	for range 100 {
		now = forward(r, k, now)
		if r.IntN(8) == 0 {
			now = max(1, now-r.Int64N(20*sp.Window))
		}
		k.rule.Repair(k.state, now)
		if k.rule.Repair(k.copy().state, now) {
			return fmt.Errorf("a state was repaired twice at one time")
		}
		if _, reset := k.rule.Numbers(k.state, now); reset > longest {
			return fmt.Errorf("after a step of the clock the state is used for %d: want at most %d, as after one capacity and a debt of another", reset, longest)
		}
		if err := k.consistent(now, 1, 0); err != nil {
			return err
		}
		cost := 1 + r.Int64N(2*k.rule.Capacity())
		if v := k.rule.Judge(k.state, now, cost, 0); v.Admit {
			k.charge(now, cost, v.Delay)
		} else if r.IntN(4) == 0 {
			k.owe(now, cost)
		}
	}
	k.owe(now, 1<<40)
	k.owe(now, 1<<40)
	most := slices.Clone(k.state)
	left, reset := k.rule.Numbers(k.state, now)
	_, grows := k.rule.(algorithms.Growing) // it may be stored otherwise
	if k.owe(now, 1<<40); left != 0 || reset > longest || !grows && !refills && !slices.Equal(most, k.state) {
		return fmt.Errorf("debts: remaining %d, reset %d, state %v, and after another %v: want at most one capacity of debt, used for %d", left, reset, most, k.state, longest)
	}
	return nil
}

// longestReset returns for how long a state can be used: after as much as may be charged.
//
// A clock that is set back by a microsecond may go unnoticed: states are rounded to it.
func longestReset(r algorithms.Rule) int64 {
	k := newKey(r)
	k.owe(start, r.Capacity())
	k.owe(start, 1<<40)
	_, reset := r.Numbers(k.state, start)
	if _, dated := r.(algorithms.Dated); dated {
		reset = r.Window() + hour // the longest period is that and a change of the clock
	}
	return reset + 1
}

const hour = int64(3_600_000_000)
