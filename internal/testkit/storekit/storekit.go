// Package storekit is shared by the tests of several stores.
package storekit

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/stores"
)

// Kit makes counters. Its tables come from the tests that use it: those of package memory itself could not
// import a kit that imports memory.
type Kit struct {
	NewTable func(rules []algorithms.Rule, maxKeys int64) stores.Table // returns the local table of a counter
}

// Adopt has a store adopt a counter that is in use until the test ends: what is known of the keys of one that is not
// is not put back.
func Adopt(t testing.TB, by interface{ Adopt(c *stores.Counter) }, c *stores.Counter) {
	t.Helper()
	by.Adopt(c)
	t.Cleanup(func() { runtime.KeepAlive(c) })
}

// Hour is an hour in microseconds.
const Hour = 3_600_000_000

// CheckOfKey returns a check of cost 1 of the k-th key in one zone.
func CheckOfKey(c *stores.Counter, k uint64) *stores.Check {
	key := stores.Key{Hi: k, Lo: k*31 + 1} // a slot of zeros is empty
	return &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: key, Tag: key, Group: uint32(k % 7)}, Cost: 1}}}
}

// TenPerHour returns a counter of 10 per hour, which may hold costs.
func (k Kit) TenPerHour(t testing.TB, name string, hold bool) *stores.Counter {
	t.Helper()
	c := k.NewTestCounter(t, name, 0, hold, nil, RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 10, Window: Hour, Cost: 1, Overdraws: true}})
	c.Table = k.NewTable(c.Rules, 100)
	return c
}

// CheckOf returns a check of one key in zones of these counters.
func CheckOf(cost int64, counters ...*stores.Counter) *stores.Check {
	check := new(stores.Check)
	for _, c := range counters {
		check.Zones = append(check.Zones, stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 1}, Tag: stores.Key{Hi: 1, Lo: 1}}, Cost: cost, WantsMore: true})
	}
	return check
}

// RuleSpec is a rule before it is compiled.
type RuleSpec struct {
	Alg  algorithms.Algorithm // with its options
	Spec algorithms.Spec      // its parameters
}

// NewTestCounter returns a counter of the rules. Counters of the same kinds can
// share a table, as those of a configuration and of its successor do.
func (k Kit) NewTestCounter(tb testing.TB, name string, inFlight int64, hold bool, table stores.Table, specs ...RuleSpec) *stores.Counter {
	tb.Helper()
	c := &stores.Counter{Terms: stores.Terms{Zone: name, InFlight: inFlight, HoldCost: hold, Table: table}}
	for _, sp := range specs {
		r, err := sp.Alg.Compile(sp.Spec)
		if err != nil {
			tb.Fatalf("%T %+v: %v", sp.Alg, sp.Spec, err)
		}
		c.Rules = append(c.Rules, r)
		c.Algorithms = append(c.Algorithms, sp.Alg)
		c.Kinds += "." + sp.Alg.Kind() + "/" + strconv.FormatInt(sp.Spec.Window, 10)
	}
	c.Split = func(n int64) []algorithms.Rule {
		var rules []algorithms.Rule
		for _, sp := range specs {
			sp.Spec.ShareOf = n
			r, err := sp.Alg.Compile(sp.Spec)
			if err != nil {
				tb.Error(err)
			}
			rules = append(rules, r)
		}
		return rules
	}
	if table == nil {
		c.Table = k.NewTable(c.Rules, 10_000)
	}
	return c
}

// RandomRule returns a rule with a short window, whose edges a random trace is
// likely to reach.
func RandomRule(r *rand.Rand, delays, debt bool) RuleSpec {
	sp := algorithms.Spec{Limit: randomLimit(r), Window: 200 + r.Int64N(40_000), Cost: 1, Overdraws: debt}
	burst := int64(0)
	if r.IntN(2) == 0 {
		burst = 1 + r.Int64N(30)
	}
	switch r.IntN(8) {
	case 0:
		return RuleSpec{Alg: &algorithms.GCRA{Burst: burst}, Spec: sp}
	case 1:
		return RuleSpec{Alg: &algorithms.TokenBucket{Burst: burst}, Spec: sp}
	case 2:
		step := 1 + r.Int64N(10)
		sp.Window = step * (20 + r.Int64N(1000))
		return RuleSpec{Alg: &algorithms.TokenBucket{Burst: burst, Step: caddy.Duration(time.Duration(step) * time.Microsecond)}, Spec: sp}
	case 3:
		if !delays || debt {
			return RuleSpec{Alg: &algorithms.LeakyBucket{Burst: burst, NoDelay: true}, Spec: sp}
		}
		sp.MaxTurn = 10_000_000
		return RuleSpec{Alg: &algorithms.LeakyBucket{Burst: burst}, Spec: sp}
	case 4:
		return RuleSpec{Alg: &algorithms.FixedWindow{Align: r.IntN(2) == 0}, Spec: sp}
	case 5:
		return RuleSpec{Alg: &algorithms.SlidingWindow{Buckets: 1 + r.IntN(20)}, Spec: sp}
	case 6: // its edges are reached by what ends there
		sp.Period, sp.Window = algorithms.Day, algorithms.Day.Longest()
		return RuleSpec{Alg: &algorithms.Calendar{TimeZone: "America/New_York"}, Spec: sp}
	}
	return RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: sp}
}

func randomLimit(r *rand.Rand) int64 {
	switch r.IntN(8) {
	case 0:
		return 1 + r.Int64N(300)
	case 1:
		return 100 + r.Int64N(900)
	}
	return 1 + r.Int64N(20)
}

// Changed returns the rule with another limit and burst. Its states remain valid.
func (s RuleSpec) Changed(r *rand.Rand) RuleSpec {
	s.Spec.Limit = randomLimit(r)
	switch a := s.Alg.(type) {
	case *algorithms.GCRA:
		s.Alg = &algorithms.GCRA{Burst: 1 + r.Int64N(30)}
	case *algorithms.TokenBucket:
		s.Alg = &algorithms.TokenBucket{Burst: 1 + r.Int64N(30), Step: a.Step}
	case *algorithms.LeakyBucket: // with a delay or without, and for a longer or a shorter turn
		s.Alg = &algorithms.LeakyBucket{Burst: 1 + r.Int64N(30), NoDelay: a.NoDelay || r.IntN(3) == 0}
		s.Spec.MaxTurn /= 1 + r.Int64N(3)
	}
	return s
}

// Seeded returns a random source with the seed DIANA_SEED, or a random one, and logs
// the seed.
func Seeded(tb testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DIANA_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	tb.Logf("DIANA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // tests want it to repeat
}

// Operations returns how many checks a differential test makes: DIANA_OPS, or 4,000, with
// which the mutants of test/exact/mutants are found.
func Operations(tb testing.TB) int {
	s := os.Getenv("DIANA_OPS")
	if s == "" {
		return 4000
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		tb.Fatalf("DIANA_OPS %q: want a number", s)
	}
	return n
}

// Charge is an admitted cost and when it was charged.
type Charge struct {
	At   int64 // microseconds
	Cost int64 // in the units of the limit
}

// WorstWindow returns the highest cost that was charged within any window of that
// many microseconds.
func WorstWindow(charges []Charge, window int64) (worst int64) {
	var sum int64
	from := 0
	for _, c := range charges {
		sum += c.Cost
		for charges[from].At <= c.At-window {
			sum -= charges[from].Cost
			from++
		}
		worst = max(worst, sum)
	}
	return worst
}

// Victim is a rule under attack, and the most that may be admitted in any
// window.
type Victim struct {
	Spec  RuleSpec // the rule
	Bound int64    // the highest cost within a window
}

// Victims returns a random rule of each algorithm.
func Victims(r *rand.Rand) map[string]Victim {
	sp := algorithms.Spec{Limit: 1 + r.Int64N(25), Window: 50 + r.Int64N(5000), Cost: 1}
	burst := 1 + r.Int64N(30)
	step := 1 + r.Int64N(20)
	stepped := sp
	stepped.Window = step * (5 + r.Int64N(50))
	l, b := sp.Limit, burst
	return map[string]Victim{
		"fixed_window":         {RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: sp}, 2*l - 1},
		"fixed_window align":   {RuleSpec{Alg: &algorithms.FixedWindow{Align: true}, Spec: sp}, 2 * l},
		"sliding_log":          {RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: sp}, l},
		"sliding_window":       {RuleSpec{Alg: &algorithms.SlidingWindow{Buckets: 1 + r.IntN(12)}, Spec: sp}, l},
		"gcra":                 {RuleSpec{Alg: &algorithms.GCRA{Burst: b}, Spec: sp}, b + l},
		"token_bucket":         {RuleSpec{Alg: &algorithms.TokenBucket{Burst: b}, Spec: sp}, b + l},
		"token_bucket step":    {RuleSpec{Alg: &algorithms.TokenBucket{Burst: b, Step: caddy.Duration(time.Duration(step) * time.Microsecond)}, Spec: stepped}, b + l},
		"leaky_bucket nodelay": {RuleSpec{Alg: &algorithms.LeakyBucket{Burst: b, NoDelay: true}, Spec: sp}, b + l},
		"leaky_bucket":         {RuleSpec{Alg: &algorithms.LeakyBucket{Burst: b}, Spec: sp}, b + l},
	}
}

// BenchKey returns the i-th of any number of keys, without storing them.
func BenchKey(i uint64) stores.Key { return stores.Key{Hi: Scramble(i), Lo: Scramble(^i)} }

// Scramble is the finalizer of splitmix64, in place of the keyed hash of a client.
func Scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// BenchRule is a rule that admits every check of a benchmark.
type BenchRule struct {
	Alg    algorithms.Algorithm // with its options
	Limit  int64                // far above what is checked
	Window time.Duration        // of the limit
}

// Rules for benchmarks.
var (
	BenchGCRA          = BenchRule{new(algorithms.GCRA), 1_000_000, time.Second}
	BenchFixedWindow   = BenchRule{new(algorithms.FixedWindow), 1_000_000, time.Hour}
	BenchSlidingWindow = BenchRule{&algorithms.SlidingWindow{Buckets: 10}, 1_000_000, time.Minute}
)

// NewBenchCounter returns a counter for a benchmark.
func (k Kit) NewBenchCounter(tb testing.TB, name string, maxKeys int64, rules ...BenchRule) *stores.Counter {
	tb.Helper()
	c := &stores.Counter{Terms: stores.Terms{Zone: name, Kinds: "bench"}}
	for _, r := range rules {
		rule, err := r.Alg.Compile(algorithms.Spec{Limit: r.Limit, Window: r.Window.Microseconds(), Cost: 1})
		if err != nil {
			tb.Fatal(err)
		}
		c.Rules = append(c.Rules, rule)
		c.Algorithms = append(c.Algorithms, r.Alg)
	}
	c.Table = k.NewTable(c.Rules, maxKeys)
	return c
}
