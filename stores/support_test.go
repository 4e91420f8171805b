package stores

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/scripts"
)

// newTable is set by the package under test to what makes a counter's table.
var newTable func(rules []algorithms.Rule, holds bool, maxKeys int64) tabler

const hour = 3_600_000_000

func localAsk(c *Counter, k uint64) *Ask {
	key := Key{k, k*31 + 1} // a slot of zeros is empty
	return &Ask{Items: []Item{{Counter: c, Key: key, Tag: key, Group: uint32(k % 7), Cost: 1}}}
}

func tenAnHour(t testing.TB, name string, hold bool) *Counter {
	t.Helper()
	c := newTestCounter(t, name, 0, hold, nil, ruleSpec{&algorithms.FixedWindow{}, algorithms.Spec{Limit: 10, Window: hour, Cost: 1, Debt: true}})
	c.Table = newTable(c.Rules, true, 100)
	return c
}

func items(cost int64, counters ...*Counter) *Ask {
	a := new(Ask)
	for _, c := range counters {
		a.Items = append(a.Items, Item{Counter: c, Key: Key{1, 1}, Tag: Key{1, 1}, Cost: cost})
	}
	return a
}

// ruleSpec is a rule of a random zone.
type ruleSpec struct {
	alg  algorithms.Algorithm
	spec algorithms.Spec
}

// newTestCounter compiles rules. Counters of the same kinds can share a table,
// as those of a configuration and its successor do.
func newTestCounter(tb testing.TB, name string, inFlight int64, hold bool, table tabler, specs ...ruleSpec) *Counter {
	tb.Helper()
	c := &Counter{Zone: name, InFlight: inFlight, HoldCost: hold, Table: table}
	for _, sp := range specs {
		r, err := sp.alg.Compile(sp.spec)
		if err != nil {
			tb.Fatalf("%T %+v: %v", sp.alg, sp.spec, err)
		}
		c.Rules = append(c.Rules, r)
		c.Codes = append(c.Codes, scripts.Decide().Code(sp.alg))
		c.Kinds += "." + sp.alg.Kind() + "/" + strconv.FormatInt(sp.spec.Window, 10)
	}
	c.Split = func(n int64) []algorithms.Rule {
		var rules []algorithms.Rule
		for _, sp := range specs {
			sp.spec.ShareOf = n
			r, err := sp.alg.Compile(sp.spec)
			if err != nil {
				tb.Error(err)
			}
			rules = append(rules, r)
		}
		return rules
	}
	if table == nil {
		c.Table = newTable(c.Rules, inFlight > 0 || hold, 10_000)
	}
	return c
}

// randomRule is a rule whose window is short, so that a trace meets its edges.
func randomRule(r *rand.Rand, delays, debt bool) ruleSpec {
	sp := algorithms.Spec{Limit: randomLimit(r), Window: 200 + r.Int64N(40_000), Cost: 1, Debt: debt}
	burst := int64(0)
	if r.IntN(2) == 0 {
		burst = 1 + r.Int64N(30)
	}
	switch r.IntN(7) {
	case 0:
		return ruleSpec{&algorithms.GCRA{Burst: burst}, sp}
	case 1:
		return ruleSpec{&algorithms.TokenBucket{Burst: burst}, sp}
	case 2:
		step := 1 + r.Int64N(10)
		sp.Window = step * (20 + r.Int64N(1000))
		return ruleSpec{&algorithms.TokenBucket{Burst: burst, Step: caddy.Duration(time.Duration(step) * time.Microsecond)}, sp}
	case 3:
		if !delays || debt {
			return ruleSpec{&algorithms.LeakyBucket{Burst: burst, NoDelay: true}, sp}
		}
		sp.MaxTurn = 10_000_000
		return ruleSpec{&algorithms.LeakyBucket{Burst: burst}, sp}
	case 4:
		return ruleSpec{&algorithms.FixedWindow{Align: r.IntN(2) == 0}, sp}
	case 5:
		return ruleSpec{&algorithms.SlidingWindow{Buckets: 1 + r.IntN(20)}, sp}
	}
	return ruleSpec{&algorithms.SlidingLog{}, sp}
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

// changed is the rule with another limit and burst, which keep its counts.
func (s ruleSpec) changed(r *rand.Rand) ruleSpec {
	s.spec.Limit = randomLimit(r)
	switch a := s.alg.(type) {
	case *algorithms.GCRA:
		s.alg = &algorithms.GCRA{Burst: 1 + r.Int64N(30)}
	case *algorithms.TokenBucket:
		s.alg = &algorithms.TokenBucket{Burst: 1 + r.Int64N(30), Step: a.Step}
	}
	return s
}

func seeded(tb testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DIANA_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	tb.Logf("DIANA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// operations is how many asks a differential test makes.
func operations(tb testing.TB, def int) int {
	s := os.Getenv("DIANA_OPS")
	if s == "" {
		return def
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		tb.Fatalf("DIANA_OPS %q: want a number", s)
	}
	return n
}

// charge is an admitted cost and its instant.
type charge struct{ at, cost int64 }

// worstWindow is the most that was charged in any window microseconds.
func worstWindow(charges []charge, window int64) (worst int64) {
	var sum int64
	from := 0
	for _, c := range charges {
		sum += c.cost
		for charges[from].at <= c.at-window {
			sum -= charges[from].cost
			from++
		}
		worst = max(worst, sum)
	}
	return worst
}

// victim is a rule under attack, and the most that may pass in any window.
type victim struct {
	spec  ruleSpec
	bound int64
}

// victims makes a random rule of each algorithm.
func victims(r *rand.Rand) map[string]victim {
	sp := algorithms.Spec{Limit: 1 + r.Int64N(25), Window: 50 + r.Int64N(5000), Cost: 1}
	burst := 1 + r.Int64N(30)
	step := 1 + r.Int64N(20)
	stepped := sp
	stepped.Window = step * (5 + r.Int64N(50))
	l, b := sp.Limit, burst
	return map[string]victim{
		"fixed_window":         {ruleSpec{&algorithms.FixedWindow{}, sp}, 2*l - 1},
		"fixed_window align":   {ruleSpec{&algorithms.FixedWindow{Align: true}, sp}, 2 * l},
		"sliding_log":          {ruleSpec{&algorithms.SlidingLog{}, sp}, l},
		"sliding_window":       {ruleSpec{&algorithms.SlidingWindow{Buckets: 1 + r.IntN(12)}, sp}, l},
		"gcra":                 {ruleSpec{&algorithms.GCRA{Burst: b}, sp}, b + l},
		"token_bucket":         {ruleSpec{&algorithms.TokenBucket{Burst: b}, sp}, b + l},
		"token_bucket step":    {ruleSpec{&algorithms.TokenBucket{Burst: b, Step: caddy.Duration(time.Duration(step) * time.Microsecond)}, stepped}, b + l},
		"leaky_bucket nodelay": {ruleSpec{&algorithms.LeakyBucket{Burst: b, NoDelay: true}, sp}, b + l},
		"leaky_bucket":         {ruleSpec{&algorithms.LeakyBucket{Burst: b}, sp}, b + l},
	}
}

// benchKey is the i-th of any number of keys, which are not kept anywhere.
func benchKey(i uint64) Key { return Key{scramble(i), scramble(^i)} }

// scramble is the finalizer of splitmix64: what a keyed hash makes of a client.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// benchRule is a rule that admits everything that a benchmark can ask for.
type benchRule struct {
	alg    algorithms.Algorithm
	limit  int64
	window time.Duration
}

var (
	benchGCRA          = benchRule{new(algorithms.GCRA), 1_000_000, time.Second}
	benchFixedWindow   = benchRule{new(algorithms.FixedWindow), 1_000_000, time.Hour}
	benchSlidingWindow = benchRule{&algorithms.SlidingWindow{Buckets: 10}, 1_000_000, time.Minute}
)

func newBenchCounter(b *testing.B, name string, maxKeys int64, rules ...benchRule) *Counter {
	b.Helper()
	c := &Counter{Zone: name, Kinds: "bench"}
	for _, r := range rules {
		rule, err := r.alg.Compile(algorithms.Spec{Limit: r.limit, Window: r.window.Microseconds(), Cost: 1})
		if err != nil {
			b.Fatal(err)
		}
		c.Rules = append(c.Rules, rule)
		c.Codes = append(c.Codes, scripts.Decide().Code(r.alg))
	}
	c.Table = newTable(c.Rules, false, maxKeys)
	return c
}
