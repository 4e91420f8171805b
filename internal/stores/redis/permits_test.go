package redis

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
	"github.com/dianalimiter/diana/stores/hash"
)

// virtualStart is when a test on a virtual clock begins, in microseconds.
const virtualStart = 1_700_000_000_000_000

// virtualStore is a store and its virtual clock, which is set in seconds since
// virtualStart.
type virtualStore struct {
	*Store
	v *virtual
}

func newVirtualStore(t *testing.T) *virtualStore {
	t.Helper()
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	return &virtualStore{newVirtualShared(t, srv, v), v}
}

func (s *virtualStore) set(seconds float64) {
	s.v.now = virtualStart + int64(seconds*1e6)
	s.v.tick()
}

// at decides one check at an instant.
func (s *virtualStore) at(seconds float64, c *stores.Counter, cost int64) *stores.ZoneCheck {
	s.set(seconds)
	check := storekit.CheckOfKey(c, 1)
	check.Zones[0].Cost = cost
	s.Decide(context.Background(), check)
	return &check.Zones[0]
}

// expect fails the test if the zone check was not charged, or not denied, as
// wanted, or if Remaining is not left.
func expect(t *testing.T, what string, z *stores.ZoneCheck, admit bool, left int64) {
	t.Helper()
	if z.Charged != admit || z.Full == admit || z.Results[0].Remaining != left {
		t.Errorf("%s: charged %v, full %v, remaining %d; want charged %v, remaining %d", what, z.Charged, z.Full, z.Results[0].Remaining, admit, left)
	}
}

// holdingCounter returns a counter of 10 per hour with two permits, each of which
// holds its cost.
func holdingCounter(t *testing.T, name string) *stores.Counter {
	t.Helper()
	return kit.NewTestCounter(t, name, 2, true, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1, Overdraws: true}})
}

// TestPermitsLapse acquires permits by two instances. Those of each lapse 30 seconds
// after its last report, to the microsecond. The cost that they held stays held for as long
// again, and is then charged. An instance that comes back after that charges only what is more.
func TestPermitsLapse(t *testing.T) {
	one, two := twoInstances(t)
	c := holdingCounter(t, "lapse")
	first := one.at(0, c, 2)
	expect(t, "the first", first, true, 8)
	expect(t, "the second", two.at(20, c, 3), true, 5)
	expect(t, "before the first lapses", two.at(29.999999, c, 1), false, 5)
	third := two.at(30, c, 1)
	expect(t, "when the first has lapsed", third, true, 4)
	expect(t, "with both permits of the second instance", two.at(59.9, c, 1), false, 4)

	// A denied check reports nothing: the permits lapse 30 s after the last that took
	// one. Then a report brings back what its instance still holds.
	expect(t, "when all have lapsed", one.at(60, c, 1), true, 1)
	one.set(60.1)
	one.Finish(context.Background(), first, 2)
	expect(t, "after the first was charged 2 again", one.at(60.2, c, 1), true, 2)
}

// TestEachLapses has several instances die that held a permit each. Each permit lapses at
// its own time, also after others have lapsed.
func TestEachLapses(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "each")
	for i, at := range []float64{0, 20, 30} {
		expect(t, "before", s.at(at, c, 1), true, 9-int64(i))
		s.crash()
	}
	expect(t, "before the second lapses", s.at(49.9, c, 1), false, 7)
	expect(t, "when the second has lapsed", s.at(50, c, 1), true, 6)
	s.crash()
	expect(t, "when the third has lapsed", s.at(60, c, 1), true, 5)
}

// TestPermitsHoldNoCost takes a permit of a zone that charges at once. It holds no cost
// in addition.
func TestPermitsHoldNoCost(t *testing.T) {
	one, two := twoInstances(t)
	c := kit.NewTestCounter(t, "charged", 5, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
	one.at(0, c, 3)
	expect(t, "another instance", two.at(0, c, 2), true, 5)
}

// TestPermitsAreRenewed renews the permits of one instance. They remain valid, and
// those of another instance lapse.
func TestPermitsAreRenewed(t *testing.T) {
	one, two := twoInstances(t)
	c := holdingCounter(t, "renew")
	first := one.at(0, c, 2)
	two.at(0, c, 3)
	one.set(9.999)
	before := one.lastCall()
	if one.renewPermits(); one.lastCall() != before {
		t.Error("permits are renewed before they are due")
	}
	one.set(20)
	one.renewPermits()
	two.crash()
	expect(t, "before the other instance's lapses", one.at(29.999999, c, 1), false, 5)
	expect(t, "when the other instance's has lapsed", one.at(30, c, 1), true, 4)
	for _, at := range []float64{45, 60, 75} {
		one.set(at)
		one.renewPermits()
	}
	expect(t, "with two renewed", two.at(104.9, c, 1), false, 4)
	one.set(105)
	one.Finish(context.Background(), first, 0)
	expect(t, "with one released", two.at(105.1, c, 1), true, 5)
}

// TestDeniedChecksRenewNothing holds all permits of a key while checks of the same instance
// are denied all the time, which store no report. The permits are renewed all the same.
func TestDeniedChecksRenewNothing(t *testing.T) {
	one, two := twoInstances(t)
	c := holdingCounter(t, "denied")
	one.at(0, c, 1)
	one.at(0, c, 1)
	for at := 1; at < 30; at++ {
		expect(t, "a third request of the instance", one.at(float64(at), c, 1), false, 8)
		one.renewPermits()
	}
	expect(t, "a request of another instance", two.at(31, c, 1), false, 8)
}

// permitsIn returns how many permits a key in Redis has, 0 if it does not exist.
func permitsIn(t *testing.T, client *goredis.Client, name string) int64 {
	t.Helper()
	value, err := client.Get(context.Background(), name).Result()
	if errors.Is(err, goredis.Nil) {
		return 0
	}
	r := &reply{b: value}
	n := r.number()
	if err != nil || r.err != nil {
		t.Fatal(name, err, r.err)
	}
	return n
}

// TestRecordsEnd releases all permits. When Redis knows, this instance keeps nothing of
// them, and renews nothing.
func TestRecordsEnd(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "end")
	first, second := s.at(0, c, 2), s.at(0, c, 3)
	s.set(1)
	s.Finish(context.Background(), first, 1)
	if !s.holdsPermits() {
		t.Error("the record of a permit that is held has ended")
	}
	s.set(1)
	s.Finish(context.Background(), second, 0)
	if s.holdsPermits() || oldest(&s.permits.ages) != nil || s.permits.held.Of(first) != (memory.Held{}) {
		t.Errorf("%d records after the last permit was released", len(s.permits.records))
	}
}

// TestPermitsAfterClockStepBack acquires a permit an hour ahead. It expires within
// 30 seconds of the first one that is acquired after the clock was set back.
func TestPermitsAfterClockStepBack(t *testing.T) {
	s, c := newVirtualStore(t), holdingCounter(t, "back")
	s.at(3600, c, 2)
	s.crash()
	expect(t, "after the step", s.at(0, c, 3), true, 5)
	s.crash()
	expect(t, "half a minute later", s.at(30, c, 1), true, 4)
	expect(t, "again", s.at(30, c, 1), true, 3)
}

// TestEntryIsFoundByWholeID looks for the entry of an instance whose ID is equal to the
// bytes of a number in another's entry, which stays as it is.
func TestEntryIsFoundByWholeID(t *testing.T) {
	one, two := twoInstances(t)
	c := holdingCounter(t, "number")
	one.at(0, c, 2)
	two.permits.id = math.Float64bits(float64(virtualStart+lapse.Microseconds())) ^ one.permits.id ^ one.permits.recordOf(c, stores.Key{Hi: 1, Lo: 32}, stores.Key{Hi: 1, Lo: 32}).id
	expect(t, "another instance", two.at(1, c, 1), true, 7)
	expect(t, "with two permits held", two.at(1, c, 1), false, 7)
	expect(t, "when the first has lapsed", two.at(30, c, 1), true, 6)
}

// TestFinishTwice finishes a request twice, in both stores: its permit is
// released once.
func TestFinishTwice(t *testing.T) {
	s := newVirtualStore(t)
	for name, store := range map[string]stores.Store{"local": &memory.Store{Clock: s.v.clock}, "redis": s.Store} {
		c := holdingCounter(t, name)
		decide := func() *stores.ZoneCheck {
			s.set(1)
			check := storekit.CheckOfKey(c, 1)
			store.Decide(context.Background(), check)
			return &check.Zones[0]
		}
		finish := func(z *stores.ZoneCheck, charge int64) {
			s.set(1)
			store.Finish(context.Background(), z, charge)
		}
		first := decide()
		expect(t, name+", the second", decide(), true, 8)
		finish(first, 0)
		finish(first, 0)
		expect(t, name+", a third", decide(), true, 8)
		expect(t, name+", with two permits held", decide(), false, 8)
	}
}

// TestChargeAfterAReserve charges a request once more after its reserved cost was
// charged. It no longer holds anything, so a charge whose outcome is unknown is
// not retried.
func TestChargeAfterAReserve(t *testing.T) {
	s := newVirtualStore(t)
	c := kit.NewTestCounter(t, "reserve", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1, Overdraws: true}})
	s.set(0)
	check := storekit.CheckOfKey(c, 1)
	z := &check.Zones[0]
	z.Reserve = true
	s.Decide(context.Background(), check)
	s.set(0)
	s.Finish(context.Background(), z, 1)
	z.Reserve = false
	s.set(0)
	s.Finish(context.Background(), z, 3)
	if left := s.at(0, c, 1).Results[0].Remaining; left != 5 {
		t.Errorf("remaining %d of 10 after charges of 1, 3 and 1, want 5", left)
	}
	s.Observe(silent{})
	s.markDown()
	s.Finish(context.Background(), z, 3)
	if s.holdsPermits() {
		t.Error("the charge is to be repeated")
	}
}

// TestLiveInstances counts instances by their heartbeats: once each, for five
// seconds after the last, and not in the future.
func TestLiveInstances(t *testing.T) {
	srv := redistest.Start(t)
	one := &virtualStore{v: &virtual{client: srv.Client()}}
	two := &virtualStore{v: &virtual{client: srv.Client()}}
	one.Store, two.Store = newVirtualShared(t, srv, one.v), newVirtualShared(t, srv, two.v)
	for _, b := range []struct {
		store *virtualStore
		at    float64
		live  int64
	}{{one, 0, 1}, {two, 1, 2}, {one, 2, 2}, {one, 5.999999, 2}, {one, 6, 1}, {two, 10, 2}, {one, 9, 1}} {
		b.store.set(b.at)
		n, err := b.store.countInstances(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if n != b.live {
			t.Errorf("at %v: %d instances, want %d", b.at, n, b.live)
		}
	}
}

// TestTimeToLive checks when keys expire: not before their rules are in the
// initial state, and at most a second later. A charge does not change the expiry
// of a log while it satisfies that.
func TestTimeToLive(t *testing.T) {
	for name, alg := range map[string]algorithms.Algorithm{"gcra": &algorithms.GCRA{}, "sliding_log": &algorithms.SlidingLog{}, "sliding_window": &algorithms.SlidingWindow{}} {
		t.Run(name, func(t *testing.T) {
			s := newVirtualStore(t)
			long, short := algorithms.Spec{Limit: 10, Window: 10_000_000, Cost: 1}, algorithms.Spec{Limit: 100, Window: 1000, Cost: 1}
			c := kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: alg, Spec: long}, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: short})
			first := s.expires(t, c, 0.0000005)
			if again := s.expires(t, c, 0.05); name == "sliding_log" && again != first {
				t.Errorf("it expires at %d, want %d as before, which is late enough", again, first)
			}
			if name == "sliding_log" {
				s.expires(t, c, float64(first-virtualStart)/1e6-10+0.0005) // its rules need half a millisecond more
				s.expires(t, c, 20)
				s.expires(t, c, 12) // the clock is set back
			}
			s.expires(t, c, 40)
		})
	}
	t.Run("one meter", func(t *testing.T) {
		s := newVirtualStore(t)
		c := kit.NewTestCounter(t, "one", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: 10_000_000, Cost: 1}})
		for _, at := range []float64{0.0000005, 0.05, 0.1, 20, 12, 40} {
			s.expires(t, c, at)
		}
	})
}

// expires charges 1 and returns the expiry of the key, in microseconds.
func (s *virtualStore) expires(t *testing.T, c *stores.Counter, seconds float64) int64 {
	t.Helper()
	z := s.at(seconds, c, 1)
	if !z.Charged {
		t.Fatalf("denied at %v", seconds)
	}
	return s.expiry(t, z)
}

// expiry returns the expiry of a key, in microseconds.
func (s *virtualStore) expiry(t *testing.T, z *stores.ZoneCheck) int64 {
	t.Helper()
	value, err := s.v.client.Get(context.Background(), namesOf("diana", z)[0]).Result()
	if err != nil {
		t.Fatal(err)
	}
	r := &reply{b: value}
	at, need := r.number()*1000, s.v.now
	for _, res := range z.Results {
		need = max(need, s.v.now+res.Reset)
	}
	if at < need || at > need+1_000_000 {
		t.Errorf("at %d: the key expires %d microseconds after its rules are in the initial state, want 0 to 1000000", s.v.now, at-need)
	}
	return at
}

// TestDebtAfterClockStepBack charges a rule with the highest debt after the
// clock was set back by a microsecond. No debt is lost, in both stores.
func TestDebtAfterClockStepBack(t *testing.T) {
	s := newVirtualStore(t)
	local := &storekit.Ledger{Clock: s.v.clock}
	for name, alg := range map[string]algorithms.Algorithm{"gcra": &algorithms.GCRA{}, "fixed_window": &algorithms.FixedWindow{}, "sliding_window": &algorithms.SlidingWindow{}} {
		large := kit.NewTestCounter(t, name, 0, false, nil, storekit.RuleSpec{Alg: alg, Spec: algorithms.Spec{Limit: 40, Window: storekit.Hour, Cost: 1, Overdraws: true}})
		same := algorithms.Spec{Limit: 40, Window: storekit.Hour, Cost: 1, Overdraws: true}
		if name != "gcra" { // its unit depends on the limit
			same.Limit = 10
		}
		small := kit.NewTestCounter(t, name, 0, false, large.Table, storekit.RuleSpec{Alg: alg, Spec: same})
		for i, c := range []*stores.Counter{large, small, small} {
			now := virtualStart + 100 - int64(i)
			both := [2]*stores.Check{storekit.CheckOfKey(c, 1), storekit.CheckOfKey(c, 1)}
			for x, store := range []stores.Store{s.Store, local} {
				s.v.now = now
				s.v.tick()
				z := &both[x].Zones[0]
				z.Rules, z.Charged, z.Results = c.Rules, true, make([]stores.Result, 1)
				store.Finish(context.Background(), z, 1000)
			}
			compareStates(t, name, s.v, local, &both[0].Zones[0])
		}
	}
}

// TestNamesOfKeys checks that no two counters share a key, and that the keys of
// one call are in one slot.
func TestNamesOfKeys(t *testing.T) {
	tag, key := stores.Key{Hi: 1, Lo: 2}, stores.Key{Hi: 3, Lo: 4}
	check := func(zone, kinds string, k stores.Key) *stores.ZoneCheck {
		return &stores.ZoneCheck{Counter: &stores.Counter{Terms: stores.Terms{Zone: zone, Kinds: kinds, InFlight: 1}}, Subject: stores.Subject{Key: k, Tag: tag}}
	}
	names := make(map[string]bool)
	for _, z := range []*stores.ZoneCheck{check("a", "x", tag), check("b", "x", tag), check("a", "y", tag), check("a", "x", key)} {
		keys := namesOf("diana", z)
		if names[keys[0]] || names[keys[1]] && z.Counter.Kinds != "y" || keys[0] == keys[1] {
			t.Errorf("%v: another counter has one of these keys", keys)
		}
		names[keys[0]], names[keys[1]] = true, true
		if want := "diana:{" + string(hash.AppendKey(nil, tag)) + "}:"; !strings.HasPrefix(keys[0], want) || !strings.HasPrefix(keys[1], want) {
			t.Errorf("%v: want keys that begin with %s", keys, want)
		}
	}
}

// TestMalformedReplies reads replies that the script never sends.
func TestMalformedReplies(t *testing.T) {
	for _, f := range []float64{1.5, 1<<53 + 2, -(1<<53 + 2), math.NaN(), math.Inf(1)} {
		var b [8]byte
		for i := range b {
			b[i] = byte(math.Float64bits(f) >> (8 * i))
		}
		r := reply{b: string(b[:])}
		if n := r.number(); !errors.Is(r.err, errReply) {
			t.Errorf("%v is read as %d", f, n)
		}
	}
	c := &stores.Counter{Rules: []algorithms.Rule{}}
	excess := reply{b: "1234567812345678"}
	if err := excess.readRules(&stores.ZoneCheck{Counter: c}, &prepare(c).packed, 0); !errors.Is(err, errReply) {
		t.Error("excess bytes after the rules' states: want an error")
	}
	r := reply{b: string(appendNumber(nil, 1))[:7]}
	if r.number(); !errors.Is(r.err, errReply) {
		t.Error("seven bytes as a number: want an error")
	}

	srv := redistest.Start(t)
	conn := newTestConn(ConnOptions{Addresses: []string{srv.Addr}, Timeout: 5 * time.Second, DialTimeout: time.Second, Script: "return struct.pack('<ddd', 12345, 0, 1)"})
	t.Cleanup(func() { _ = conn.client.Close() })
	if _, err := conn.callOnce(context.Background(), nil, []byte{opBeat}); !errors.Is(err, errReply) {
		t.Errorf("the reply to another call: %v, want errReply", err)
	}
}

// TestPermitOfDeadInstanceAfterClockStepBack acquires the only permit an hour
// ahead and does not release it. 30 s after the clock was set back it has expired,
// though all requests since then were denied.
func TestPermitOfDeadInstanceAfterClockStepBack(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	s := newVirtualShared(t, srv, v)
	c := kit.NewTestCounter(t, "z", 1, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 100, Window: 1_000_000, Cost: 1}})
	decide := func(now int64) *stores.Check {
		v.now = now
		v.tick()
		check := storekit.CheckOfKey(c, 1)
		s.Decide(context.Background(), check)
		return check
	}
	const start, second = 10 * storekit.Hour, 1_000_000
	if !decide(start + storekit.Hour).Admitted {
		t.Fatal("the first request was denied")
	}
	(&virtualStore{s, v}).crash()
	if !decide(start).Zones[0].Full {
		t.Fatal("a second request acquired the only permit")
	}
	if check := decide(start + 29*second); check.Admitted {
		t.Error("the permit expired early")
	}
	if check := decide(start + 31*second); !check.Admitted {
		t.Error("the permit has not expired 30 s after the clock was set back")
	}
}

// TestPermitOutlivesStore closes a store, as a reload that changes its options
// does, while a request holds a permit: the permit is renewed, and released at
// its end.
func TestPermitOutlivesStore(t *testing.T) {
	srv := redistest.Start(t)
	client, ctx := srv.Client(), context.Background()
	var now atomic.Int64
	now.Store(storekit.Hour)
	s := newTestShared(t, srv, now.Load)
	s.endAtOnce()
	c := kit.NewTestCounter(t, "outlives", 1, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{}, Spec: algorithms.Spec{Limit: 10, Window: storekit.Hour, Cost: 1}})
	check := storekit.CheckOf(1, c)
	s.Decide(ctx, check)
	name := namesOf("diana", &check.Zones[0])[1]
	if err := client.PExpire(ctx, name, 20*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Destruct(); err != nil {
		t.Fatal(err)
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waiting for %s", what)
			}
		}
	}
	now.Add(renewEvery.Microseconds())
	wait("the permit to be renewed", func() bool { return client.PTTL(ctx, name).Val() > 25*time.Second })
	s.Finish(ctx, &check.Zones[0], 0)
	wait("the permit to be released", func() bool { return permitsIn(t, client, name) == 0 })
	wait("the connections to be closed", s.isClosed)
}
