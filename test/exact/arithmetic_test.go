// Package exact_test checks the arithmetic in Go against the verdicts of an oracle
// that remembers every request, and against the bounds in docs/internals/arithmetic.md.
package exact_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// fataler is the part of *testing.T and *rapid.T that the tests use.
type fataler interface {
	Fatalf(format string, args ...any)
}

// algorithm returns the algorithm of an oracle's rule.
func algorithm(r oracle.Rule) algorithms.Algorithm {
	switch r.Algorithm {
	case "gcra":
		return &algorithms.GCRA{Burst: r.Burst}
	case "token_bucket":
		return &algorithms.TokenBucket{Burst: r.Burst, Step: caddy.Duration(time.Duration(r.Step) * time.Microsecond)}
	case "leaky_bucket":
		return &algorithms.LeakyBucket{Burst: r.Burst, NoDelay: r.NoDelay}
	case "fixed_window":
		return &algorithms.FixedWindow{Align: r.Align}
	case "sliding_window":
		return &algorithms.SlidingWindow{Buckets: int(r.Buckets)}
	case "sliding_log":
		return &algorithms.SlidingLog{}
	case "calendar":
		return &algorithms.Calendar{TimeZone: r.Zone, From: r.From}
	}
	panic(fmt.Sprintf("algorithm %q does not exist", r.Algorithm))
}

func spec(r oracle.Rule) algorithms.Spec {
	period, _ := algorithms.ParsePeriod(r.Period)
	return algorithms.Spec{Limit: r.Limit, Window: r.Window, Period: period, Cost: 1, MaxWait: r.MaxWait}
}

// compile compiles rules that are decided together.
func compile(rules []oracle.Rule) ([]algorithms.Rule, error) {
	turn := int64(0)
	for _, r := range rules {
		if b, ok := algorithm(r).(*algorithms.LeakyBucket); ok {
			turn = max(turn, b.MaxDelay(spec(r)))
		}
	}
	var compiled []algorithms.Rule
	for _, r := range rules {
		sp := spec(r)
		sp.MaxTurn = turn
		c, err := algorithm(r).Compile(sp)
		if err != nil {
			return nil, fmt.Errorf("%+v: %w", r, err)
		}
		compiled = append(compiled, c)
	}
	return compiled, nil
}

// key is the state of one key, with the operations that a store runs on it.
type key struct {
	t      fataler
	rules  []algorithms.Rule
	states []algorithms.State
	before algorithms.State // state of the current rule before judging

	follows bool // the limits change
}

func newKey(t fataler, rules []algorithms.Rule) *key {
	k := &key{t: t, rules: rules}
	for _, r := range rules {
		k.states = append(k.states, make(algorithms.State, r.Words()))
	}
	return k
}

// clone returns an independent copy of k.
func (k *key) clone() *key {
	c := &key{t: k.t, rules: k.rules, follows: k.follows}
	for _, s := range k.states {
		c.states = append(c.states, slices.Clone(s))
	}
	return c
}

// peek returns every rule's verdict and fails the test if judging changes a state or
// detects a clock step where there was none.
func (k *key) peek(now, cost int64) []oracle.Verdict {
	verdicts := make([]oracle.Verdict, len(k.rules))
	for i, r := range k.rules {
		k.before = append(k.before[:0], k.states[i]...)
		if r.Repair(k.states[i], now) {
			k.t.Fatalf("at %d: rule %d was repaired without a clock step: %v", now, i, k.before)
		}
		if algorithms.Follow(r, k.states[i], now); k.follows {
			copy(k.before, k.states[i])
		}
		v := r.Judge(k.states[i], now, cost, 0)
		if v.Held || v.Admit && v.Retry != 0 || !v.Admit && v.Delay != 0 {
			k.t.Fatalf("at %d: rule %d: inconsistent verdict %+v", now, i, v)
		}
		verdicts[i] = oracle.Verdict{Admit: v.Admit, RetryAfter: v.Retry, Delay: v.Delay}
		verdicts[i].Remaining, verdicts[i].ResetAfter = r.Numbers(k.states[i], now)
		if !slices.Equal(k.before, k.states[i]) {
			k.t.Fatalf("at %d: judging changed the state of rule %d from %v to %v", now, i, k.before, k.states[i])
		}
	}
	return verdicts
}

// decide judges by every rule and charges all of them if all admit.
func (k *key) decide(now, cost int64) (bool, []oracle.Verdict) {
	verdicts := k.peek(now, cost)
	turn := int64(0)
	for _, v := range verdicts {
		if !v.Admit {
			return false, verdicts
		}
		turn = max(turn, v.Delay)
	}
	for i, r := range k.rules {
		k.charge(i, now, cost, turn)
		verdicts[i].Remaining, verdicts[i].ResetAfter = r.Numbers(k.states[i], now)
	}
	return true, verdicts
}

// charge charges one rule, after growing its state if necessary.
func (k *key) charge(i int, now, cost, turn int64) {
	if g, ok := k.rules[i].(algorithms.Growing); ok {
		need := g.Need(k.states[i], now, cost)
		if need < len(k.states[i]) {
			k.t.Fatalf("at %d: rule %d needs %d words, fewer than the %d it has", now, i, need, len(k.states[i]))
		}
		if need > len(k.states[i]) {
			longer := make(algorithms.State, need)
			g.Move(longer, k.states[i])
			k.states[i] = longer
		}
	}
	k.rules[i].Charge(k.states[i], now, cost, turn)
}
