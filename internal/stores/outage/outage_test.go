package outage

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// errRejected and errUnknown are errors of calls of which it is known that they have not run, and
// not known.
var errRejected, errUnknown = errors.New("rejected"), errors.New("no reply")

// fake is a Redis that takes what is handed over, without keeping it.
type fake struct {
	now     int64
	away    bool
	usable  int           // for how many calls of Usable it is not away; 0: for all
	fails   error         // of each key
	refuses Part          // of each key
	breaks  error         // of each call
	cut     int           // for how many keys there is a reply nevertheless
	takes   time.Duration // each call
	during  func()        // each call; nil: nothing
	holding bool
	fate    *Fate // of calls that may have run; nil: it is never known

	calls   int
	as      map[stores.Key]*stores.Counter // under which keys were handed over
	debts   map[stores.Key]int64
	told    []stores.Key
	blocks  []stores.Key
	unswept []stores.Key
	paid    int

	uncharged map[stores.Uncharged]int64
	then      func() // is called once, when something is reported as uncharged
}

func (f *fake) AnyUsable() bool               { return !f.away }
func (f *fake) ResetAgain(context.Context)    {}
func (f *fake) Pausing() bool                 { return f.holding }
func (f *fake) Owed() func()                  { return func() { f.paid++ } }
func (f *fake) Now(stores.Key) memory.Instant { return memory.Instant{Local: f.now, Shared: f.now + 5} }

func (f *fake) MayHaveRun(err error) bool {
	return !errors.Is(err, errRejected)
}

func (f *fake) Await(err error, then func(Fate)) {
	if f.fate != nil {
		then(*f.fate)
		return
	}
	then(Fate{Known: !f.MayHaveRun(err)})
}

func (f *fake) Unswept(tag stores.Key)             { f.unswept = append(f.unswept, tag) }
func (*fake) Note(*stores.ZoneCheck, int64, int64) {}
func (f *fake) Uncharged(_ string, why stores.Uncharged, cost int64) {
	f.uncharged[why] += cost
	if then := f.then; then != nil {
		f.then = nil
		then()
	}
}

func (f *fake) HandOver(_ context.Context, some []Handover) (r Reply, err error) {
	f.calls++
	time.Sleep(f.takes)
	if f.during != nil {
		f.during()
	}
	for i := range some {
		h, of := &some[i], Outcome{Err: f.fails, Refused: f.refuses}
		f.as[h.Zone.Key] = h.Zone.Counter
		if f.breaks == nil && f.fails == nil && f.refuses == 0 {
			if h.Block != nil {
				f.blocks = append(f.blocks, h.Zone.Key)
			}
			if h.Told != nil {
				f.told = append(f.told, h.Zone.Key)
			}
			for _, d := range h.Debts {
				f.debts[h.Zone.Key] += d[0] / (storekit.Hour / 10) // in the units of the counter's rule
			}
		}
		r.Keys = append(r.Keys, of)
	}
	if f.breaks != nil {
		return Reply{Keys: r.Keys[:f.cut], Time: f.Now(stores.Key{})}, f.breaks
	}
	r.Time = f.Now(stores.Key{})
	return r, nil
}

func (f *fake) Usable(stores.Key) bool {
	if f.usable > 0 {
		f.usable--
		f.away = f.usable == 0
	}
	return !f.away
}

// newFallback returns a fallback of one of two instances, and a counter of 10 an hour.
func newFallback(t *testing.T, clustered bool) (*fake, *Fallback, *stores.Counter) {
	t.Helper()
	r := &fake{now: storekit.Hour, debts: make(map[stores.Key]int64), uncharged: make(map[stores.Uncharged]int64), as: make(map[stores.Key]*stores.Counter)}
	f := New(Options{
		Local: true, ShareOf: func() int64 { return 2e6 }, Clock: func() int64 { return r.now }, Clustered: clustered,
	}, r, new(memory.Permits))
	sp := algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}
	return r, f, kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: new(algorithms.GCRA), Spec: sp})
}

func key(n uint64) stores.Key { return stores.Key{Hi: n, Lo: 7} }

// decide decides a check without Redis.
func (f *Fallback) decide(c *stores.Counter, k stores.Key) bool {
	check := stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Cost: 1}}}
	f.Decide(&check, nil)
	return check.Admitted
}

// TestOutage decides without Redis, by the share of this instance. What it charges is handed over
// once, however the calls with it fail: what was certainly rejected again, what was perhaps charged
// not.
func TestOutage(t *testing.T) {
	for name, c := range map[string]struct {
		fails, breaks error
		want          int64
	}{
		"taken":            {nil, nil, 5},
		"rejected alone":   {errRejected, nil, 5},
		"a rejected call":  {nil, errRejected, 5},
		"an unknown call":  {nil, errUnknown, 0},
		"unknown, one key": {errUnknown, nil, 0},
	} {
		r, f, counter := newFallback(t, false)
		r.away = true
		admitted := 0
		for range 20 {
			if f.decide(counter, key(1)) {
				admitted++
			}
		}
		if f.Hands.Pay(t.Context()); admitted != 5 || r.calls != 0 {
			t.Errorf("%s: %d admitted and %d calls in the outage, want the share of 10 and none", name, admitted, r.calls)
		}
		r.away, r.fails, r.breaks = false, c.fails, c.breaks
		f.Hands.Pay(t.Context())
		r.fails, r.breaks = nil, nil
		for range 3 {
			f.Hands.Pay(t.Context())
		}
		if r.debts[key(1)] != c.want || r.paid == 0 {
			t.Errorf("%s: %d are charged, want %d; paid %d times", name, r.debts[key(1)], c.want, r.paid)
		}
	}
}

// TestCallsWithoutAReply decides a check, and charges another after its response, whose calls had no
// reply in time. They are owed only if it turns out that they were not made, and reported if that remains
// unknown.
func TestCallsWithoutAReply(t *testing.T) {
	for name, c := range map[string]struct {
		fate            *Fate
		owed, uncharged int64
	}{
		"unknown":     {nil, 0, 3},
		"not made":    {&Fate{Known: true}, 3, 0},
		"made":        {&Fate{Known: true, Ran: true, Charged: []bool{true}}, 0, 0},
		"made denied": {&Fate{Known: true, Ran: true, Charged: []bool{false}}, 1, 0},
	} {
		r, f, counter := newFallback(t, false)
		r.fate = c.fate
		check := stores.Check{Zones: []stores.ZoneCheck{{Counter: counter, Subject: stores.Subject{Key: key(1), Tag: key(1)}, Cost: 1}}}
		f.Decide(&check, errUnknown)
		f.Settle(&stores.ZoneCheck{Counter: counter, Subject: stores.Subject{Key: key(1), Tag: key(1)}, Cost: 1}, 2, errUnknown)
		if f.Hands.Pay(t.Context()); r.debts[key(1)] != c.owed || r.uncharged[stores.UnchargedUnknown] != c.uncharged {
			t.Errorf("%s: of 3 %d are owed and %d reported, want %d and %d", name, r.debts[key(1)], r.uncharged[stores.UnchargedUnknown], c.owed, c.uncharged)
		}
	}
}

// bare is an algorithm whose rules cannot hand over what they count.
type bare struct{ algorithms.FixedWindow }

func (b *bare) Compile(sp algorithms.Spec) (algorithms.Rule, error) {
	r, err := b.FixedWindow.Compile(sp)
	return struct{ algorithms.Rule }{r}, err
}

// TestDebtsOfAnotherStoreAreNotGivenUp closes a store that another one follows. The follower charges what
// was owed.
func TestDebtsOfAnotherStoreAreNotGivenUp(t *testing.T) {
	_, f, c := newFallback(t, false)
	r, next, _ := newFallback(t, false)
	f.decide(c, key(1))
	f.Hands.PassOn(next.Hands)
	f.Hands.Close()
	if next.Hands.Pay(t.Context()); r.debts[key(1)] != 1 {
		t.Errorf("%d charged by the store that follows, want 1", r.debts[key(1)])
	}
}

// TestSettleCountsByTheShare settles 4 of a share of 5 an hour without Redis. After half an hour, 2.5
// of them have drained: by the whole limit of 10, all would have.
func TestSettleCountsByTheShare(t *testing.T) {
	r, f, counter := newFallback(t, false)
	z := stores.ZoneCheck{Counter: counter, Subject: stores.Subject{Key: key(1), Tag: key(1)}, Cost: 1}
	f.Settle(&z, 4, errRejected)
	r.now += storekit.Hour / 2
	admitted := 0
	for range 10 {
		if f.decide(counter, key(1)) {
			admitted++
		}
	}
	if admitted != 3 {
		t.Errorf("%d admitted half an hour after 4 of 5, want 3", admitted)
	}
}

// TestSharePermits divides permits among instances.
func TestSharePermits(t *testing.T) {
	for _, c := range []struct{ n, of, want int64 }{{0, 3e6, 0}, {1, 3e6, 1}, {4, 3e6, 1}, {6, 3e6, 2}, {7, 1e6, 7}, {5, 2_500_000, 2}, {1 << 52, 2e6, 1 << 51}} {
		f := Fallback{o: Options{ShareOf: func() int64 { return c.of }}}
		if got := f.SharePermits(c.n); got != c.want {
			t.Errorf("%d of %d millionths of an instance: %d, want %d", c.n, c.of, got, c.want)
		}
	}
}

// TestPayEnds hands over the debts and the snapshots of 50 keys: none after its context has ended,
// then all, in a Cluster each in a call of its own.
func TestPayEnds(t *testing.T) {
	for clustered, want := range map[bool]int{false: 4, true: 100} {
		r, f, c := newFallback(t, clustered)
		for n := range uint64(50) {
			f.decide(c, key(n))
		}
		storekit.Adopt(t, f.Hands, c)
		for n := range uint64(50) {
			f.learn(c, key(100+n), 3)
		}
		f.Hands.LostMemory()
		ended, end := context.WithCancel(t.Context())
		end()
		if f.Hands.Pay(ended); r.calls != 0 {
			t.Errorf("clustered %v: %d calls after the end", clustered, r.calls)
		}
		if f.Hands.Pay(t.Context()); r.calls != want || len(r.debts) != 50 || len(r.told) != 50 {
			t.Errorf("clustered %v: %d debts and %d snapshots in %d calls, want 50 and 50 in %d", clustered, len(r.debts), len(r.told), r.calls, want)
		}
	}
}

// TestNodeGoesAwayBetweenKeys has a node go away while debts are collected for a call, at every key:
// nothing was sent, and all is charged later.
func TestNodeGoesAwayBetweenKeys(t *testing.T) {
	for usable := range 50 {
		r, f, c := newFallback(t, false)
		for n := range uint64(50) {
			f.decide(c, key(n))
		}
		r.usable = usable + 1
		f.Hands.Pay(t.Context())
		r.usable, r.away = 0, false
		f.Hands.Pay(t.Context())
		for n := range uint64(50) {
			if r.debts[key(n)] != 1 {
				t.Fatalf("away at key %d: of key %d %d is charged, want 1", usable+1, n, r.debts[key(n)])
			}
		}
	}
}

// TestLargeDebtIsPaidInParts charges a debt that is too large for two calls. Requests wait until all of
// it is charged, however long the calls take.
func TestLargeDebtIsPaidInParts(t *testing.T) {
	for takes, want := range map[time.Duration][]int{0: {3}, 3 * handFor / 4: {2, 3}, 2 * handFor: {1, 2, 3}} {
		synctest.Test(t, func(t *testing.T) {
			r, f, _ := newFallback(t, false)
			sp := algorithms.Spec{Limit: 10_000, Window: storekit.Hour, Cost: 1}
			c := kit.NewTestCounter(t, "log", 0, false, nil, storekit.RuleSpec{Alg: new(algorithms.SlidingLog), Spec: sp})
			f.Decide(&stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: key(1), Tag: key(1)}, Cost: 5000}}}, nil)
			r.takes, r.holding = takes, true
			for i, calls := range want {
				again, all := f.Hands.Pay(t.Context()), i == len(want)-1
				if r.calls != calls || again == all || r.paid > 0 != all {
					t.Errorf("calls take %v: after %d, called again: %v, paid: %v; want %d and, after the last, that it is paid", takes, r.calls, again, r.paid > 0, calls)
				}
			}
		})
	}
}

// generation returns the counters of a zone and of an override of one configuration, which count in
// a table.
func generation(t *testing.T, table stores.Table, limits ...int64) (all []*stores.Counter) {
	t.Helper()
	of := make(map[int64]*stores.Counter)
	for i, limit := range limits {
		sp := algorithms.Spec{Limit: limit, Window: storekit.Hour, Cost: 1}
		c := kit.NewTestCounter(t, "z", 0, false, table, storekit.RuleSpec{Alg: new(algorithms.GCRA), Spec: sp})
		c.Override, c.Overrides, of[int64(i)] = int64(i), of, c
		all = append(all, c)
	}
	return all
}

// TestDebtsAreChargedAsInForce changes the rules of a zone in an outage, with debts before and after,
// and then tries a configuration that does not come into force. Each key is charged under the rules
// in force; one of an override that is gone, under those that it had.
func TestDebtsAreChargedAsInForce(t *testing.T) {
	r, f, c := newFallback(t, false)
	old := generation(t, c.Table, 1000, 10, 5)
	storekit.Adopt(t, f.Hands, old[0])
	f.decide(old[0], key(0))
	f.decide(old[2], key(2))
	now := generation(t, c.Table, 500, 100)
	storekit.Adopt(t, f.Hands, now[0])
	f.decide(now[1], key(1))
	f.Hands.Adopt(generation(t, c.Table, 1, 1, 1)[0])
	runtime.GC() // what was tried is gone
	f.Hands.Pay(t.Context())
	for k, want := range map[stores.Key]*stores.Counter{key(0): now[0], key(1): now[1], key(2): old[2]} {
		if got := r.as[k]; got != want {
			t.Errorf("%v is charged under %d and override %d, want %d and %d", k, got.Rules[0].Limit(), got.Override, want.Rules[0].Limit(), want.Override)
		}
	}
	if all := f.Hands.adopted.counters(); len(all) != 1 || all[c.Table] != now[0] {
		t.Errorf("%d tables are known, that in force: %v", len(all), all[c.Table] == now[0])
	}
}

// TestReplacedTablesAreForgotten replaces tables in an outage. Only what is owed in the one that is
// counted in takes memory.
func TestReplacedTablesAreForgotten(t *testing.T) {
	r, f, c := newFallback(t, false)
	r.away = true
	for range 20 {
		_, _, next := newFallback(t, false)
		f.decide(next, key(1))
		_ = memory.TableOf(next).Destruct()
	}
	f.decide(c, key(1))
	f.Hands.Pay(t.Context())
	if n := len(f.Hands.tables); n != 1 {
		t.Errorf("%d tables owe, want 1", n)
	}
}

// learn has Redis report a key of which cost is used.
func (f *Fallback) learn(c *stores.Counter, k stores.Key, cost int64) {
	rule := c.Rules[0]
	state := make(algorithms.State, rule.Words())
	at := f.redis.Now(k)
	rule.Charge(state, at.Shared, cost, 0)
	z := stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: k, Tag: k}, Enforced: stores.Enforced{Rules: c.Rules}, Results: []stores.Result{{Rule: rule, State: state}}}
	f.Learn(&z, at, false, func() {})
}

// TestSweep puts back what is known of keys that no request checks, with blocks, after a loss. If
// the node is away meanwhile, that is noted, and all is put back when it answers.
func TestSweep(t *testing.T) {
	r, f, c := newFallback(t, false)
	c.Blocks, c.Blocked = []int64{storekit.Hour}, memory.NewBlocks(100)
	storekit.Adopt(t, f.Hands, c)
	for n := range uint64(40) {
		f.learn(c, key(n), 3)
	}
	blocked := stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key(3)}, Block: stores.Block{Until: 2 * storekit.Hour, Span: storekit.Hour}}
	f.LearnBlock(&blocked, r.Now(key(3)))
	if f.Hands.Pay(t.Context()); r.calls != 0 {
		t.Fatalf("%d calls without a loss", r.calls)
	}
	f.Hands.LostMemory()
	r.breaks = errUnknown
	if f.Hands.Pay(t.Context()); len(r.unswept) == 0 || r.calls == 0 {
		t.Errorf("after %d calls that failed, that is noted for %v", r.calls, r.unswept)
	}
	r.breaks, r.blocks = nil, nil
	f.Hands.LostMemory()
	f.Hands.Pay(t.Context())
	slices.SortFunc(r.told, func(a, b stores.Key) int { return int(a.Hi) - int(b.Hi) })
	if r.told = slices.Compact(r.told); len(r.told) != 40 || !slices.Equal(r.blocks, []stores.Key{key(3)}) {
		t.Errorf("put back: %d keys and the blocks of %v, want 40 and that of %v", len(r.told), r.blocks, key(3))
	}
}

// TestBlockFailsAlone puts back a block whose key is another program's in Redis. The zone's rules owe
// nothing, and may be such that cannot owe.
func TestBlockFailsAlone(t *testing.T) {
	r, f, c := newFallback(t, false)
	c.Blocks, c.Blocked = []int64{storekit.Hour}, memory.NewBlocks(100)
	storekit.Adopt(t, f.Hands, c)
	blocked := stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key(3)}, Block: stores.Block{Until: 2 * storekit.Hour, Span: storekit.Hour}}
	f.LearnBlock(&blocked, r.Now(key(3)))
	f.Hands.LostMemory()
	r.fails = errUnknown
	if f.Hands.Pay(t.Context()); r.calls != 1 || len(f.Hands.tables) != 0 {
		t.Errorf("%d calls, %d tables owe, want 1 and none", r.calls, len(f.Hands.tables))
	}
}

// TestNothingIsLostUncounted charges more keys without Redis than there may be, at their decision or
// after their response. What is not owed is reported.
func TestNothingIsLostUncounted(t *testing.T) {
	for _, most := range []int64{1, 5, 100, 200} {
		for _, afterwards := range []bool{false, true} {
			r, f, counter := newFallback(t, false)
			counter.Table, counter.HoldCost = memory.NewTable(counter.Rules, most), afterwards
			r.away = true
			var charged int64
			for k := range uint64(200) {
				check := stores.Check{Zones: []stores.ZoneCheck{{Counter: counter, Subject: stores.Subject{Key: key(k), Tag: key(k), Group: uint32(k)}, Cost: 1}}}
				if f.Decide(&check, nil); !check.Admitted {
					continue
				}
				charged++
				if afterwards {
					f.Finish(&check.Zones[0], 1)
				}
			}
			r.away = false
			for range 10 {
				f.Hands.Pay(t.Context())
			}
			var paid int64
			for _, n := range r.debts {
				paid += n
			}
			if paid != min(most, 200) || paid+r.uncharged[stores.UnchargedFull] != charged {
				t.Errorf("room for %d, afterwards %t: of %d charged alone %d are charged in Redis and %d reported", most, afterwards, charged, paid, r.uncharged[stores.UnchargedFull])
			}
		}
	}
}
