package stores

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/scripts"
)

// quiet is a Watcher that fails the test on what should not happen.
type quiet struct{ tb testing.TB }

func (quiet) StoreUp(string) {}
func (q quiet) StoreDown(_ string, err error, advice string) {
	q.tb.Errorf("store down: %v: %s", err, advice)
}
func (q quiet) StoreError(_ string, f Failure, err error) { q.tb.Errorf("store error %s: %v", f, err) }
func (quiet) ClockSteps(string)                           {}
func (quiet) Live(string, int)                            {}

func newTestShared(tb testing.TB, r *redistest.Server, clock func() int64) *Shared {
	tb.Helper()
	s := NewShared(SharedOptions{
		Name: "redis", Clock: clock,
		RedisOptions: RedisOptions{Addresses: []string{r.Addr}, Prefix: "diana", Timeout: 5 * time.Second, DialTimeout: time.Second},
	}, quiet{tb})
	s.Start(0)
	tb.Cleanup(func() { _ = s.Destruct() })
	return s
}

// ruleSpec is a rule of a random zone.
type ruleSpec struct {
	alg  algorithms.Algorithm
	spec algorithms.Spec
}

func newTestCounter(tb testing.TB, name string, inFlight int64, hold bool, specs ...ruleSpec) *Counter {
	tb.Helper()
	c := &Counter{Zone: name, InFlight: inFlight, HoldCost: hold}
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
	c.Table = NewTable(c.Rules, inFlight > 0 || hold, 10_000)
	return c
}

func randomRule(r *rand.Rand, delays, debt bool) ruleSpec {
	// Windows are short, so that a trace in real time meets their edges.
	sp := algorithms.Spec{Limit: 1 + r.Int64N(20), Window: 200 + r.Int64N(40_000), Cost: 1, Debt: debt}
	if r.IntN(4) == 0 {
		sp.Limit = 1 + r.Int64N(300)
	}
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
		sp.MaxTurn = 1_000_000
		return ruleSpec{&algorithms.LeakyBucket{Burst: burst}, sp}
	case 4:
		return ruleSpec{&algorithms.FixedWindow{Align: r.IntN(2) == 0}, sp}
	case 5:
		return ruleSpec{&algorithms.SlidingWindow{Buckets: 1 + r.IntN(20)}, sp}
	}
	return ruleSpec{&algorithms.SlidingLog{}, sp}
}

func seeded(tb testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DIANA_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	tb.Logf("DIANA_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a trace that can be made again
}

// TestStoresAgree asks Redis, and then the local store at the instant that
// Redis gave: same verdicts, same numbers, over random zones and traces.
func TestStoresAgree(t *testing.T) {
	srv := redistest.Start(t)
	now := int64(0)
	clock := func() int64 { return now }
	shared := newTestShared(t, srv, clock)
	local := &Local{Clock: clock}
	r := seeded(t)
	for round := range 60 {
		zones := 1 + r.IntN(3)
		counters := make([]*Counter, zones)
		hold := r.IntN(4) == 0
		for z := range counters {
			var specs []ruleSpec
			for range r.IntN(5) + 1 {
				specs = append(specs, randomRule(r, !hold, hold))
			}
			inFlight := int64(0)
			if r.IntN(5) == 0 {
				inFlight = 1 + r.Int64N(5)
			}
			counters[z] = newTestCounter(t, "z"+strconv.Itoa(round)+"-"+strconv.Itoa(z), inFlight, hold, specs...)
		}
		var open [][2]*Ask
		for step := range 150 {
			ask := func() *Ask {
				a := &Ask{}
				for z, c := range counters {
					k := Key{uint64(step%2) + 1, 7}
					a.Items = append(a.Items, Item{Counter: c, Key: k, Tag: k, Cost: 1, Shadow: z == 2})
				}
				return a
			}
			cost := 1 + r.Int64N(3)
			a, b := ask(), ask()
			for i := range a.Items {
				a.Items[i].Cost, b.Items[i].Cost = cost, cost
			}
			shared.Decide(context.Background(), a)
			now = a.Now
			local.Decide(context.Background(), b)
			compareAsks(t, round, step, a, b)
			if t.Failed() {
				for _, c := range counters {
					t.Logf("%s: %s", c.Zone, c.Kinds)
				}
				t.FailNow()
			}
			if a.Admitted {
				open = append(open, [2]*Ask{a, b})
			}
			for len(open) > 0 && (r.IntN(3) == 0 || len(open) > 8) {
				i := r.IntN(len(open))
				charge := r.Int64N(3)
				finishBoth(t, shared, local, open[i], charge, &now)
				open = append(open[:i], open[i+1:]...)
			}
			if r.IntN(5) == 0 {
				time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
			}
		}
		for _, o := range open {
			finishBoth(t, shared, local, o, 0, &now)
		}
	}
	srv.CheckTTLs()
}

// finishBoth ends a request in both stores at the instant that Redis gives.
func finishBoth(t *testing.T, shared *Shared, local *Local, o [2]*Ask, charge int64, now *int64) {
	t.Helper()
	for i := range o[0].Items {
		a, b := &o[0].Items[i], &o[1].Items[i]
		if place, cost := a.holds(); !place || !a.Charged {
			continue
		} else if !cost {
			charge = 0
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		f := finishOf(shared.conn.prefix, a, charge)
		_, at, err := shared.conn.call(ctx, f.keys, f.ask)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		*now = at
		local.Finish(context.Background(), b, charge)
	}
}

func compareAsks(t *testing.T, round, step int, a, b *Ask) {
	t.Helper()
	if a.Mode != ModeShared {
		t.Fatalf("round %d step %d: mode %v", round, step, a.Mode)
	}
	if a.Admitted != b.Admitted || a.Admitted && a.Turn != b.Turn {
		t.Errorf("round %d step %d: redis admitted %v turn %d, local %v turn %d", round, step, a.Admitted, a.Turn, b.Admitted, b.Turn)
	}
	for i := range a.Items {
		x, y := &a.Items[i], &b.Items[i]
		if x.Admits != y.Admits || x.Charged != y.Charged || x.Full != y.Full {
			t.Errorf("round %d step %d zone %d: redis admits %v charged %v full %v, local %v %v %v", round, step, i, x.Admits, x.Charged, x.Full, y.Admits, y.Charged, y.Full)
		}
		for k := range x.Results {
			p, q := x.Results[k], y.Results[k]
			p.state, p.rule = nil, nil
			if p.Verdict != q.Verdict || p.Remaining != q.Remaining || p.Reset != q.Reset {
				t.Errorf("round %d step %d zone %d rule %d (%T): redis %+v, local %+v", round, step, i, k, x.Rules[k], p, q)
			}
		}
	}
}
