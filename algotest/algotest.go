// Package algotest tests an algorithm of another module as this module tests its own: its
// arithmetic in Go, its Lua against that on a real redis-server, decisions in Redis, and
// faults. docs/internals/new-algorithm.md explains what an algorithm has to do.
//
//	func TestAlgorithm(t *testing.T) {
//		algotest.Run(t, algotest.Config{
//			Algorithm: new(MyAlgorithm),
//			Bound:     func(sp algorithms.Spec) int64 { return sp.Limit },
//		})
//	}
//
// It needs redis-server in the path. Random traces log their seed; the environment variable
// DIANA_SEED repeats one.
package algotest

import (
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// Config describes an algorithm to test.
type Config struct {
	// Algorithm is the algorithm, with its options. It must be a registered Caddy module.
	Algorithm algorithms.Algorithm

	// Bound returns the greatest cost that may be admitted in any window of a rule.
	Bound func(algorithms.Spec) int64

	// Specs are the rules to test. Windows should be short, so that a random trace meets
	// their ends. Default: limits from 1 to 100 in windows from 50 us to 20 ms.
	Specs []algorithms.Spec
}

// Run runs all tests of an algorithm, as subtests.
func Run(t *testing.T, c Config) {
	for name, test := range map[string]func(testing.TB, *Config){
		"arithmetic": arithmetic, "lua": lua, "redis": shared, "faults": faults,
	} {
		t.Run(name, func(t *testing.T) { test(t, &c) })
	}
}

// specs returns the rules to test.
func (c *Config) specs() []algorithms.Spec {
	if len(c.Specs) > 0 {
		return slices.Clone(c.Specs)
	}
	return []algorithms.Spec{
		{Limit: 1, Window: 50, Cost: 1}, {Limit: 5, Window: 1000, Cost: 1}, {Limit: 7, Window: 999, Cost: 2, Overdraws: true}, {Limit: 100, Window: 20_000, Cost: 1, Overdraws: true},
	}
}

// compile compiles a rule.
func (c *Config) compile(t testing.TB, sp algorithms.Spec) algorithms.Rule {
	t.Helper()
	r, err := c.Algorithm.Compile(sp)
	if err != nil {
		t.Fatalf("%+v: %v", sp, err)
	}
	return r
}

// counter returns a counter of one rule for a store.
func (c *Config) counter(t testing.TB, zone string, sp algorithms.Spec) *stores.Counter {
	t.Helper()
	r := c.compile(t, sp)
	table := memory.NewTable([]algorithms.Rule{r}, 10_000)
	return storekit.Kit{}.NewTestCounter(t, zone, 0, false, table, storekit.RuleSpec{Alg: c.Algorithm, Spec: sp})
}

// start is a time far from zero, in microseconds.
const start = int64(1_700_000_000_000_000)

// key is the state of one key in Go.
type key struct {
	rule  algorithms.Rule
	state algorithms.State
}

func newKey(r algorithms.Rule) *key { return &key{r, make(algorithms.State, r.Words())} }

// room makes room for a charge in a state that grows.
func (k *key) room(now, cost int64) {
	g, ok := k.rule.(algorithms.Growing)
	if !ok {
		return
	}
	if n := g.Need(k.state, now, cost); n > len(k.state) {
		longer := make(algorithms.State, n)
		g.Move(longer, k.state)
		k.state = longer
	}
}

func (k *key) charge(now, cost, turn int64) {
	k.room(now, cost)
	k.rule.Charge(k.state, now, cost, turn)
}

func (k *key) owe(now, cost int64) {
	k.room(now, min(cost, 2*k.rule.Capacity()))
	k.rule.Overdraw(k.state, now, cost)
}

// copy returns a copy, to try what is not to last.
func (k *key) copy() *key { return &key{k.rule, slices.Clone(k.state)} }
