package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// line is the way from one instance to Redis, which a test can cut.
type line struct{ state lineState }

type lineState int

const (
	lineWorks   lineState = iota
	lineCut               // nothing gets through
	lineSilent            // nothing gets through, and nobody says so
	lineOneWay            // what is asked gets through, the answer does not
	lineRefuses           // Redis answers that it does not want to
)

func (l *line) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (l *line) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if l.state == lineOneWay && cmd.Name() != "evalsha" { // a new connection's greeting
			return next(ctx, cmd)
		}
		err := l.fate(func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

func (l *line) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if l.state == lineOneWay { // as above
			return next(ctx, cmds)
		}
		return l.fate(func() error { return next(ctx, cmds) })
	}
}

// refusal is an error that Redis answered.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

func (l *line) fate(do func() error) error {
	switch l.state {
	case lineWorks:
		return do()
	case lineOneWay:
		_ = do()
		return context.DeadlineExceeded
	case lineSilent:
		return context.DeadlineExceeded
	case lineRefuses:
		return refusal("OOM command not allowed when used memory > 'maxmemory'.")
	}
	return dialError{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
}

// fleet is some instances before one Redis, all on one clock that the test sets.
type fleet struct {
	v     *virtual
	of    []*Store
	lines []*line
}

func newFleet(t *testing.T, srv *redistest.Server, n int) *fleet {
	t.Helper()
	f := &fleet{v: &virtual{client: srv.Client(), now: storestest.Hour}}
	for range n {
		s, l := newVirtualShared(t, srv, f.v), new(line)
		s.Observe(ignoring{})
		s.instances.live.Store(int64(n))
		s.decider.denials = s.resets.denials
		s.conn.client.AddHook(l)
		f.of, f.lines = append(f.of, s), append(f.lines, l)
	}
	return f
}

// set cuts or mends the way of one instance, and of all if i is negative. One
// that is mended is noticed at once, as the next heartbeat would.
func (f *fleet) set(i int, to lineState) {
	for n, l := range f.lines {
		if i < 0 || n == i {
			l.state = to
			if to == lineWorks {
				f.of[n].breaker.close(f.of[n].breaker.opened.Load())
			}
		}
	}
}

// ask decides one item at one instance.
func (f *fleet) ask(i int, c *stores.Counter, k stores.Key, cost int64) *stores.Check {
	for _, s := range f.of {
		s.conn.seq.Store(uint64(f.v.now) - 1)
	}
	check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Key: k, Tag: k, Cost: cost}}}
	f.of[i].Decide(context.Background(), check)
	return check
}

// most is how much passes at once, in requests of 1.
func (f *fleet) most(i int, c *stores.Counter, k stores.Key) (n int) {
	for f.ask(i, c, k, 1).Admitted {
		n++
	}
	return n
}

// counters gives every instance a counter of its own for the same zone.
func (f *fleet) counters(t *testing.T, name string, spec storestest.RuleSpec) []*stores.Counter {
	t.Helper()
	var cs []*stores.Counter
	for range f.of {
		cs = append(cs, storestest.NewTestCounter(t, name, 0, false, nil, spec))
	}
	return cs
}

// TestPromiseUnderFailures lets instances lose and regain Redis, in every way
// there is, under attack. Redis admits no more than the bound, and no instance
// without Redis more than the bound of its share: in any window, over any
// number of outages. No key is locked out afterwards.
func TestPromiseUnderFailures(t *testing.T) {
	srv := redistest.Start(t)
	r := storestest.Seeded(t)
	worst := make(map[string]float64)
	for budget, trial := storestest.Operations(t, 20_000), 0; budget > 0; trial++ {
		for name, vic := range storestest.Victims(r) {
			n := 1 + r.IntN(4)
			f := newFleet(t, srv, n)
			h := &history{fleet: f, r: r, counters: f.counters(t, fmt.Sprintf("p%d", trial), vic.Spec), window: vic.Spec.Spec.Window}
			h.key = stores.Key{Hi: 1, Lo: r.Uint64() >> r.IntN(40)}
			h.alone = make([][]storestest.Charge, n)
			const asks = 120
			budget -= asks
			attack(r, vic, asks, h.decide)
			h.check(t, name, vic, worst)
			for _, s := range f.of {
				_ = s.conn.client.Close()
			}
			if t.Failed() {
				return
			}
		}
		(&virtual{client: srv.Client()}).forget(t)
	}
	t.Logf("the most that was admitted in a window, of what is promised: %v", worst)
}

// history is what was admitted, and by whom.
type history struct {
	*fleet
	r        *rand.Rand
	counters []*stores.Counter
	key      stores.Key
	window   int64
	through  []storestest.Charge // Redis
	alone    [][]storestest.Charge
	all      []storestest.Charge
}

func (h *history) decide(at, cost int64) (bool, int64) {
	h.v.now = at
	if h.r.IntN(12) == 0 {
		who := h.r.IntN(len(h.of)+1) - 1
		h.set(who, lineState(h.r.IntN(5)))
	}
	i := h.r.IntN(len(h.of))
	if h.r.IntN(20) == 0 && !h.of[i].breaker.open.Load() {
		h.of[i].conn.seq.Store(uint64(at) - 1)
		_ = h.of[i].fallback.debts.payTable(context.Background(), h.counters[i], time.Now().Add(time.Minute))
	}
	check := h.ask(i, h.counters[i], h.key, cost)
	if check.Admitted {
		h.all = append(h.all, storestest.Charge{At: at, Cost: cost})
		if check.Mode == stores.ModeFallback {
			h.alone[i] = append(h.alone[i], storestest.Charge{At: at, Cost: cost})
		} else {
			h.through = append(h.through, storestest.Charge{At: at, Cost: cost})
		}
	}
	var retry int64
	for _, res := range check.Zones[0].Results {
		retry = max(retry, res.Retry)
	}
	return check.Admitted, retry
}

func (h *history) check(t *testing.T, name string, vic storestest.Victim, worst map[string]float64) {
	t.Helper()
	promise := vic.Bound
	if found := storestest.WorstWindow(h.through, h.window); found > vic.Bound {
		t.Errorf("%s: %d passed through Redis in a window, bound %d: %+v", name, found, vic.Bound, vic.Spec)
	}
	for i := range h.of {
		bound := aloneBound(name, shareOf(h.counters[i], int64(len(h.of))*1e6)[0])
		if len(h.alone[i]) > 0 {
			promise += bound
		}
		if found := storestest.WorstWindow(h.alone[i], h.window); found > bound {
			t.Errorf("%s: %d passed alone at one of %d instances in a window, bound %d: %+v", name, found, len(h.of), bound, vic.Spec)
		}
	}
	found := storestest.WorstWindow(h.all, h.window)
	worst[name] = max(worst[name], float64(int(100*float64(found)/float64(promise)))/100)
	h.v.now += 10 * (h.window + 1_000_000)
	for i := range h.of {
		if check := h.ask(i, h.counters[i], h.key, 1); !check.Admitted {
			t.Errorf("%s: instance %d of %d denies long after, in mode %v: %+v", name, i, len(h.of), check.Mode, check.Zones[0].Results)
		}
		h.v.now += 10 * h.window
	}
}

// aloneBound is the bound of a rule, which is a share of another.
func aloneBound(name string, share algorithms.Rule) int64 {
	l, b := share.Limit(), share.Capacity()
	switch {
	case name == "fixed_window":
		return 2*l - 1
	case strings.HasPrefix(name, "fixed"):
		return 2 * l
	case strings.HasPrefix(name, "sliding"):
		return l
	}
	return l + b
}

// everyKind is one rule of 12 in a minute for each algorithm.
func everyKind() map[string]storestest.RuleSpec {
	sp := algorithms.Spec{Limit: 12, Window: 60_000_000, Cost: 1}
	return map[string]storestest.RuleSpec{
		"fixed_window":   {Alg: &algorithms.FixedWindow{}, Spec: sp},
		"sliding_log":    {Alg: &algorithms.SlidingLog{}, Spec: sp},
		"sliding_window": {Alg: &algorithms.SlidingWindow{}, Spec: sp},
		"token_bucket":   {Alg: &algorithms.TokenBucket{}, Spec: sp},
		"leaky_bucket":   {Alg: &algorithms.LeakyBucket{NoDelay: true}, Spec: sp},
		"gcra":           {Alg: &algorithms.GCRA{}, Spec: sp},
	}
}

// TestFallbackStartsFromLastReport uses parts of a limit in Redis, and then
// loses it. Each of three instances has as much left of its third as was left
// of the whole.
func TestFallbackStartsFromLastReport(t *testing.T) {
	srv := redistest.Start(t)
	for name, spec := range everyKind() {
		for used, want := range map[int]int{0: 4, 6: 2, 9: 1, 12: 0} {
			f := newFleet(t, srv, 3)
			c := f.counters(t, fmt.Sprintf("%s-%d", name, used), spec)
			for range used {
				f.ask(0, c[0], stores.Key{Hi: 1, Lo: 2}, 1)
			}
			f.set(-1, lineRefuses)
			if n := f.most(0, c[0], stores.Key{Hi: 1, Lo: 2}); n != want {
				t.Errorf("%s: alone after %d of 12, %d pass, want %d", name, used, n, want)
			}
			if n := f.most(1, c[1], stores.Key{Hi: 1, Lo: 2}); n != 4 {
				t.Errorf("%s: at an instance that never asked for the key %d pass, want 4", name, n)
			}
		}
	}
}

// TestDebtsAreCharged admits without Redis, and finds the debt charged in
// Redis: with the next check of the key, or in the background if there is none.
// What may have been charged is not charged twice.
func TestDebtsAreCharged(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range everyKind() {
		for _, background := range []bool{false, true} {
			f := newFleet(t, srv, 3)
			c := f.counters(t, fmt.Sprintf("%s-%v", name, background), spec)
			f.ask(0, c[0], k, 1) // through Redis
			f.set(-1, lineCut)
			for i := range f.of {
				f.v.now += 1000
				f.ask(i, c[i], k, 3)
			}
			f.set(-1, lineWorks)
			f.v.now += 2_000_000
			for i, s := range f.of {
				f.lines[i].state = lineRefuses // once more: what is refused is still owed
				if background {
					s.fallback.debts.pay(context.Background())
				} else {
					f.ask(i, c[i], k, 13)
				}
				f.set(i, lineWorks)
			}
			f.v.now += 2_000_000
			for i, s := range f.of {
				if background {
					s.conn.seq.Store(uint64(f.v.now) - 1)
					s.fallback.debts.pay(context.Background())
				} else if i > 0 {
					f.ask(i, c[i], k, 12) // denied, and yet its debt is charged
				}
			}
			// 1 and three times 3 of 12 are used; a meter has drained by less than 1.
			if n := f.most(0, c[0], k); n != 2 {
				t.Errorf("%s, in the background %v: %d pass, want 2", name, background, n)
			}
			for i := range f.of {
				if memory.TableOf(c[i]).Snapshots().Owing() {
					t.Errorf("%s: keys still owe", name)
				}
			}
		}
	}
}

// TestUnknownOutcomeIsNotChargedTwice loses the reply to a check that Redis has
// charged. What the instance admits instead is not charged again. What it
// admits after a refusal is.
func TestUnknownOutcomeIsNotChargedTwice(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range everyKind() {
		for state, want := range map[lineState]int{lineOneWay: 8, lineRefuses: 8, lineSilent: 12} {
			f := newFleet(t, srv, 1)
			c := f.counters(t, fmt.Sprintf("%s-%d", name, state), spec)
			if err := f.of[0].conn.client.ScriptLoad(context.Background(), f.of[0].conn.script).Err(); err != nil {
				t.Fatal(err)
			}
			f.of[0].conn.tracker.retire() // so that the ask is always made on a new connection
			f.set(0, state)
			if check := f.ask(0, c[0], k, 4); !check.Admitted || check.Mode != stores.ModeFallback {
				t.Fatalf("%s: admitted %v in mode %v", name, check.Admitted, check.Mode)
			}
			f.set(0, lineWorks)
			key := namesOf("diana", &stores.ZoneCheck{Counter: c[0], Key: k, Tag: k})[0]
			if charged := f.v.client.Exists(context.Background(), key).Val() == 1; charged != (state == lineOneWay) {
				t.Fatalf("%s, line %d: charged in Redis: %v", name, state, charged)
			}
			f.v.now += 1_000_000
			if n := f.most(0, c[0], k); n != want {
				t.Errorf("%s, line %d: %d pass, want %d", name, state, n, want)
			}
		}
	}
}

// TestChargesDuringFallbackAreOwed ends a request that was decided without
// Redis after Redis is available again: its charge becomes a debt.
func TestChargesDuringFallbackAreOwed(t *testing.T) {
	srv := redistest.Start(t)
	k := stores.Key{Hi: 1, Lo: 2}
	for name, spec := range everyKind() {
		f := newFleet(t, srv, 1)
		spec.Spec.Debt = true
		c := storestest.NewTestCounter(t, name, 0, true, nil, spec)
		f.set(0, lineRefuses)
		check := f.ask(0, c, k, 5)
		f.set(0, lineWorks)
		f.v.now += 1_000_000
		f.ask(0, c, k, 1) // pays what is owed so far, which is nothing
		f.of[0].Finish(context.Background(), &check.Zones[0], 5)
		open := f.ask(0, c, k, 1)
		if left := open.Zones[0].Results[0].Remaining; open.Mode != stores.ModeShared || left != 5 {
			t.Errorf("%s: %d left, want 12 less the 5 counted alone and 2 that are held", name, left)
		}
	}
}

// TestKeysComeBackOneByOne checks many keys during the ramp after an outage.
// Redis starts to decide each key once, and decides all of them at its end.
func TestKeysComeBackOneByOne(t *testing.T) {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 1)
	c := f.counters(t, "ramp", everyKind()["gcra"])
	f.set(0, lineRefuses)
	f.ask(0, c[0], stores.Key{}, 1)
	f.set(0, lineWorks)
	keys, shared := make([]stores.Key, 200), make(map[stores.Key]bool)
	for i := range keys {
		keys[i] = stores.Key{Hi: uint64(i), Lo: rand.Uint64()}
	}
	for _, percent := range []int{10, 50, 90, 100} {
		f.v.now = storestest.Hour + int64(percent)*ramp.Microseconds()/100
		for _, k := range keys {
			if mode := f.ask(0, c[0], k, 1).Mode; mode == stores.ModeShared {
				shared[k] = true
			} else if shared[k] {
				t.Fatalf("a key went back to mode %v", mode)
			}
		}
		if n := len(shared) / 2; n < percent-15 || n > percent+15 {
			t.Errorf("after %d%% of the time %d%% of the keys are asked of Redis", percent, n)
		}
	}
	if len(shared) != len(keys) {
		t.Errorf("in the end %d of %d keys", len(shared), len(keys))
	}
}

// TestFewerInstancesAreAcceptedLater counts fewer instances for a moment, as
// after Redis has lost its memory, and then for good.
func TestFewerInstancesAreAcceptedLater(t *testing.T) {
	s := New(Options{Name: "redis"}, ignoring{})
	begin := time.Now()
	for _, step := range []struct {
		second     float64
		seen, want int64
	}{
		{0, 3, 3}, {1, 1, 3}, {2, 2, 3}, {3, 3, 3}, {4, 2, 3}, {8.9, 2, 3}, {9, 2, 2}, {10, 4, 4}, {11, 1, 4}, {16, 1, 1}, {17, 2, 2},
	} {
		s.instances.set(step.seen, begin.Add(time.Duration(step.second*float64(time.Second))))
		if n := s.Instances(); n != step.want {
			t.Errorf("after %v s, when %d are counted: %d, want %d", step.second, step.seen, n, step.want)
		}
	}
}

// TestLateCallChangesNothing stops Redis while calls are in flight. When Redis
// continues, it takes them up, and charges nothing: their deadlines have
// passed.
func TestLateCallChangesNothing(t *testing.T) {
	srv := redistest.Start(t)
	began := time.Now()
	s := newTestShared(t, srv, func() int64 { return storestest.Hour + time.Since(began).Microseconds() })
	s.Observe(ignoring{})
	client, ctx := srv.Client(), context.Background()
	c := storestest.NewTestCounter(t, "late", 0, false, nil, everyKind()["fixed_window"])
	call := func(n uint64) error {
		k := stores.Key{Hi: n, Lo: 1}
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		keys, ask := decideAsk("diana", &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Key: k, Tag: k, Cost: 1}}})
		_, err := s.conn.call(ctx, keys, ask)
		return err
	}
	exists := func(n uint64) bool {
		k := stores.Key{Hi: n, Lo: 1}
		return client.Exists(ctx, namesOf("diana", &stores.ZoneCheck{Counter: c, Key: k, Tag: k})[0]).Val() == 1
	}
	waitFor(t, "Redis answers", func() bool { return call(0) == nil })
	srv.Stall()
	for n := range uint64(5) {
		if err := call(1 + n); !mayHaveRun(err) {
			t.Errorf("%v from a Redis that is stopped", err)
		}
	}
	srv.Resume()
	waitFor(t, "Redis answers", func() bool { return call(100) == nil })
	if !exists(0) || !exists(100) {
		t.Error("what was answered was not charged")
	}
	for n := range uint64(5) {
		if exists(1 + n) {
			t.Errorf("call %d was carried out though it came too late", n)
		}
	}
}

// TestClockAheadIsLearned lets Redis' clock run ahead of the estimate: the call
// that Redis takes for late is sent again, and answered.
func TestClockAheadIsLearned(t *testing.T) {
	srv := redistest.Start(t)
	f := newFleet(t, srv, 1)
	c := f.counters(t, "ahead", everyKind()["gcra"])
	f.ask(0, c[0], stores.Key{Hi: 1, Lo: 2}, 1)
	s := f.of[0]
	s.decider.denials = nil // every ask is to come to Redis
	for _, step := range []int64{3_600_000_000, -3_600_000_000, 40_000_000} {
		s.conn.seq.Store(uint64(f.v.now+step) - 1)
		check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c[0], Key: stores.Key{Hi: 1, Lo: 2}, Tag: stores.Key{Hi: 1, Lo: 2}, Cost: 1}}}
		s.Decide(context.Background(), check)
		if check.Mode != stores.ModeShared || check.Now < f.v.now+step {
			t.Errorf("clock stepped by %d: mode %v at %d", step, check.Mode, check.Now-f.v.now)
		}
	}
}
