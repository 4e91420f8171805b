package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/redistest"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// zoneTrace is a random zone in two versions, which may have different limits.
type zoneTrace struct {
	counters   [2]*stores.Counter
	local      [2]*stores.Counter // the same for the stores that Redis is compared with, with other blocks
	algorithms []string
}

func randomZones(tb testing.TB, r *rand.Rand, name string, changes, logs bool) []zoneTrace {
	zones := make([]zoneTrace, 1+r.IntN(3))
	hold := r.IntN(4) == 0
	for z := range zones {
		var specs, later []storekit.RuleSpec
		for range r.IntN(5) + 1 {
			s := storekit.RandomRule(r, !hold, hold)
			if logs {
				s.Alg = &algorithms.SlidingLog{}
			}
			specs = append(specs, s)
			zones[z].algorithms = append(zones[z].algorithms, strings.TrimPrefix(fmt.Sprintf("%T", s.Alg), "*algorithms."))
			if changes {
				s = s.Changed(r)
			}
			later = append(later, s)
		}
		inFlight := int64(0)
		if r.IntN(5) == 0 {
			inFlight = 1 + r.Int64N(5)
		}
		zone := name + "-" + strconv.Itoa(z)
		first := kit.NewTestCounter(tb, zone, inFlight, hold, nil, specs...)
		zones[z].counters = [2]*stores.Counter{first, kit.NewTestCounter(tb, zone, inFlight, hold, first.Table, later...)}
		if r.IntN(2) == 0 {
			randomBlocks(r, zones[z].counters)
		}
		zones[z].local = localCounters(zones[z].counters)
	}
	return zones
}

// randomBlocks has some rules of a zone block, for other times in its two versions.
func randomBlocks(r *rand.Rand, counters [2]*stores.Counter) {
	blocked := memory.NewBlocks(1000)
	for _, c := range counters {
		c.Blocked, c.Blocks = blocked, make([]int64, len(c.Rules))
		for i, rule := range c.Rules {
			switch r.IntN(4) {
			case 0:
			case 1:
				c.Blocks[i] = 1 + r.Int64N(3)
			default:
				c.Blocks[i] = 1 + r.Int64N(rule.Window())
			}
		}
		c.Blocks[r.IntN(len(c.Blocks))] = 1 + r.Int64N(c.Rules[0].Window())
		if r.IntN(2) == 0 {
			c.Grows = make([][]int64, len(c.Rules))
			for i, d := range c.Blocks {
				for n := r.IntN(4); d > 0 && n > 0; n-- {
					d += r.Int64N(c.Rules[0].Window())
					c.Grows[i] = append(c.Grows[i], d)
				}
			}
		}
	}
}

// localCounters returns the same counters, with the same states, and blocks of their own.
func localCounters(counters [2]*stores.Counter) (local [2]*stores.Counter) {
	blocked := memory.NewBlocks(1000)
	for i, c := range counters {
		local[i] = &stores.Counter{Terms: stores.Terms{Zone: c.Zone, Kinds: c.Kinds, InFlight: c.InFlight, HoldCost: c.HoldCost, Table: c.Table, Blocks: c.Blocks, Grows: c.Grows}, Rules: c.Rules}
		if c.Blocks != nil {
			local[i].Blocked = blocked
		}
	}
	return local
}

// checkOf returns a check of one key in all zones, in one of their versions, and the same
// check for another store. The third zone is in shadow.
func checkOf(zones []zoneTrace, which int, key uint64, cost int64) (check, local *stores.Check) {
	check, local = new(stores.Check), new(stores.Check)
	for i := range zones {
		k := stores.Key{Hi: key, Lo: 7}
		z := stores.ZoneCheck{Counter: zones[i].counters[which], Subject: stores.Subject{Key: k, Tag: k}, Cost: cost, WantsMore: true}
		check.Zones = append(check.Zones, z)
		z.Counter = zones[i].local[which]
		local.Zones = append(local.Zones, z)
	}
	check.Shadows = max(0, len(zones)-2)
	local.Shadows = check.Shadows
	return check, local
}

// TestStoresAgree runs random traces of random zones on a virtual clock: with edges
// to the microsecond, long gaps, clock steps in both directions, and limits that
// alternate. Redis and a ledger give the same verdicts and numbers and have the same
// states; so does the local store, where no debts are charged and nothing is put back.
func TestStoresAgree(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	shared := newVirtualShared(t, srv, v)
	r := storekit.Seeded(t)
	const perRound = 200
	ops := storekit.Operations(t)
	verdicts := make(map[string]int)
	for round := range ops / perRound {
		tr := &trace{verdicts: verdicts, t: t, v: v, shared: shared, ledger: &storekit.Ledger{Clock: v.clock}, r: r, steps: round%3 == 1, changes: round%2 == 1, debts: 30}
		logs := round%12 == 1 || round%12 == 4
		if logs { // rings may differ in expired stamps, which matters only after debts and clock steps
			tr.debts = 5
		}
		if round%5 > 2 {
			tr.debts, tr.local = 0, &memory.Store{Clock: v.clock}
		}
		tr.zones = randomZones(t, r, "z"+strconv.Itoa(round), tr.changes, logs)
		for i := range tr.zones {
			if z := &tr.zones[i]; tr.steps && slices.Contains(z.algorithms, "SlidingLog") { // while a key is blocked, a log is not repaired
				for _, c := range []*stores.Counter{z.counters[0], z.counters[1], z.local[0], z.local[1]} {
					c.Blocks, c.Blocked = nil, nil
				}
			}
		}
		v.now = 1_700_000_000_000_000 + r.Int64N(1_000_000)
		for step := range perRound {
			tr.step(fmt.Sprintf("round %d step %d", round, step))
			if t.Failed() {
				for _, z := range tr.zones {
					t.Logf("limits %d %d", z.counters[0].Rules[0].Limit(), z.counters[1].Rules[0].Limit())
					t.Logf("%s: %s in flight %d hold %v", z.counters[0].Zone, z.counters[0].Kinds, z.counters[0].InFlight, z.counters[0].HoldCost)
				}
				t.FailNow()
			}
		}
		for len(tr.open) > 0 {
			tr.finish(0)
		}
		v.flush(t)
	}
	t.Logf("%d checks, 0 differences; verdicts compared: %v", ops, verdicts)
}

// trace is one trace of both stores.
type trace struct {
	t       *testing.T
	v       *virtual
	shared  *Store
	ledger  *storekit.Ledger
	local   *memory.Store // nil: it is not compared
	r       *rand.Rand
	zones   []zoneTrace
	steps   bool // the clock steps
	changes bool // the limits alternate
	debts   int  // one in so many steps charges a debt; 0: none
	open    []sameCheck
	edges   []int64 // instants at which a verdict or a state changes

	verdicts map[string]int // by algorithm
}

// sameCheck is a check that was decided by all stores; local is nil if the local store is not compared.
type sameCheck struct{ redis, ledger, local *stores.Check }

func (tr *trace) step(what string) {
	tr.advance()
	if tr.debts > 0 && tr.r.IntN(tr.debts) == 0 {
		tr.handOver(what)
	}
	which, key, cost := tr.r.IntN(2), uint64(1+tr.r.IntN(2)), int64(1)
	if tr.r.IntN(3) == 0 {
		cost = 1 + tr.r.Int64N(4)
	}
	check, same := checkOf(tr.zones, which, key, cost)
	check.Peek = tr.r.IntN(10) == 0
	same.Peek = check.Peek
	d := sameCheck{redis: check, ledger: same}
	tr.v.tick()
	forgetSnapshots(check)
	tr.shared.Decide(context.Background(), check)
	tr.ledger.Decide(context.Background(), same)
	compareChecks(tr.t, what, check, same)
	if tr.local != nil {
		_, d.local = checkOf(tr.zones, which, key, cost)
		d.local.Peek = check.Peek
		tr.local.Decide(context.Background(), d.local)
		compareChecks(tr.t, what+", in this process", check, d.local)
	}
	for z := range tr.zones {
		for _, name := range tr.zones[z].algorithms {
			tr.verdicts[name]++
		}
	}
	for i := range check.Zones {
		if tr.r.IntN(8) == 0 {
			compareStates(tr.t, what, tr.v, tr.ledger, &check.Zones[i])
		}
		if check.Zones[i].Block.Started {
			tr.verdicts["blocks"]++
		} else if check.Zones[i].Block.Until > 0 {
			tr.verdicts["blocked"]++
		}
		for _, res := range check.Zones[i].Results {
			tr.edges = append(tr.edges, tr.v.now+max(0, res.Retry), tr.v.now+res.Reset)
		}
	}
	if n := len(tr.edges); n > 20 {
		tr.edges = tr.edges[n-20:]
	}
	if check.Admitted && !check.Peek {
		tr.open = append(tr.open, d)
	}
	for len(tr.open) > 0 && (tr.r.IntN(3) == 0 || len(tr.open) > 8) {
		tr.finish(tr.r.Int64N(4))
	}
}

// advance advances the clock, mostly to an edge or within a microsecond of it.
func (tr *trace) advance() {
	next := tr.v.now
	switch n := tr.r.IntN(10); {
	case n < 4 || len(tr.edges) == 0:
	case n < 7:
		next = max(next, tr.edges[tr.r.IntN(len(tr.edges))]+tr.r.Int64N(3)-1)
	case n < 9:
		next += tr.r.Int64N(5000)
	default:
		next += tr.r.Int64N(200_000)
	}
	if tr.steps && tr.r.IntN(50) == 0 {
		next += tr.r.Int64N(7_200_000_000) - 3_600_000_000
	}
	if d := next - tr.v.now; d < 0 || d > 5_000_000 {
		for len(tr.open) > 0 { // in Redis their permits would expire
			tr.finish(0)
		}
	}
	tr.set(next)
}

// set sets the clock. Before it is set back, blocks that have ended end in all stores: on
// a real clock Redis expires them.
func (tr *trace) set(now int64) {
	if now < tr.v.now {
		for i := range tr.zones {
			for key := range uint64(2) {
				k := stores.Key{Hi: 1 + key, Lo: 7}
				z := &stores.ZoneCheck{Counter: tr.zones[i].counters[0], Subject: stores.Subject{Key: k, Tag: k}}
				name := blockOf("diana", z)
				value, _ := tr.v.client.Get(context.Background(), name).Result()
				if value != "" && (&reply{b: value}).number() <= tr.v.now {
					tr.v.client.Del(context.Background(), name)
					tr.zones[i].local[0].Blocked.Reset(k)
					tr.ledger.Unblock(z)
				}
			}
		}
	}
	tr.v.now = now
}

// maybeStep steps the clock at random: by up to an hour in either direction, or back
// by about a window.
func (tr *trace) maybeStep() {
	if !tr.steps || len(tr.open) > 0 || tr.r.IntN(3) > 0 {
		return
	}
	if tr.r.IntN(3) == 0 {
		tr.set(tr.v.now + tr.r.Int64N(7_200_000_000) - 3_600_000_000)
	} else {
		tr.set(tr.v.now - tr.r.Int64N(50_000))
	}
}

// finish finishes one of the open checks in all stores.
func (tr *trace) finish(charge int64) {
	i := tr.r.IntN(len(tr.open))
	o := tr.open[i]
	tr.open = append(tr.open[:i], tr.open[i+1:]...)
	for z := range o.redis.Zones {
		a := &o.redis.Zones[z]
		permit, _ := a.Holds()
		if !a.Charged || !permit && charge == 0 {
			continue
		}
		tr.v.tick()
		tr.shared.Finish(context.Background(), a, charge)
		tr.ledger.Finish(context.Background(), &o.ledger.Zones[z], charge)
		if o.local != nil {
			tr.local.Finish(context.Background(), &o.local.Zones[z], charge)
		}
	}
}

// TestQueuesOfOneZone delays checks of a zone with two queues. All stores charge
// each queue as of the longest delay.
func TestQueuesOfOneZone(t *testing.T) {
	s := newVirtualStore(t)
	ledger, local := &storekit.Ledger{Clock: s.v.clock}, &memory.Store{Clock: s.v.clock}
	sp := algorithms.Spec{Limit: 10, Window: 1000, Cost: 1, MaxWait: 100_000, MaxTurn: 1_000_000}
	slow := sp
	slow.Limit = 3
	c := kit.NewTestCounter(t, "queues", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: slow}, storekit.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: sp})
	for step := range 20 {
		s.v.now = virtualStart + int64(step/4)*700
		check, same, here := storekit.CheckOf(1, c), storekit.CheckOf(1, c), storekit.CheckOf(1, c)
		s.v.tick()
		s.Decide(context.Background(), check)
		ledger.Decide(context.Background(), same)
		local.Decide(context.Background(), here)
		what := fmt.Sprint("step ", step)
		compareChecks(t, what, check, same)
		compareChecks(t, what+", in this process", check, here)
		compareStates(t, what, s.v, ledger, &check.Zones[0])
	}
}

// TestStoresAgreeInRealTime compares the stores by Redis' own clock, with the
// unchanged script, and checks when keys expire.
func TestStoresAgreeInRealTime(t *testing.T) {
	srv := redistest.Start(t)
	now := int64(0)
	clock := func() int64 { return now }
	shared, local := newTestShared(t, srv, func() int64 { return storekit.Hour }), &memory.Store{Clock: clock}
	client := srv.Client()
	r := storekit.Seeded(t)
	for round := range 20 {
		zones := randomZones(t, r, "z"+strconv.Itoa(round), false, false)
		var slowest time.Duration
		for step := range 100 {
			what := fmt.Sprintf("round %d step %d", round, step)
			check, same := checkOf(zones, 0, 1, 1)
			sent := time.Now()
			shared.Decide(context.Background(), check)
			now = check.Now
			local.Decide(context.Background(), same)
			compareChecks(t, what, check, same)
			for i := range check.Zones {
				z := &check.Zones[i]
				if permit, _ := z.Holds(); z.Charged && permit {
					shared.Finish(context.Background(), z, 0)
					local.Finish(context.Background(), &same.Zones[i], 0)
				} else if z.Charged {
					ttl := client.PTTL(context.Background(), namesOf("diana", z)[0]).Val()
					late := time.Since(sent)
					slowest = max(slowest, late)
					checkTTL(t, what, ttl, z, late, slowest)
				}
			}
			if t.Failed() {
				t.FailNow()
			}
			if r.IntN(5) == 0 {
				time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			}
		}
	}
	srv.CheckTTLs()
}

// checkTTL fails the test unless a key lives as long as its rules need, and at most
// a second longer. ttl was read at most late after the decision, and at most slowest after
// each decision so far: Redis counts a TTL from when it is set, which can be as much after
// the TIME from which the script counts.
func checkTTL(t *testing.T, what string, ttl time.Duration, z *stores.ZoneCheck, late, slowest time.Duration) {
	t.Helper()
	var need time.Duration
	for _, res := range z.Results {
		need = max(need, time.Duration(res.Reset)*time.Microsecond)
	}
	if most := (need + time.Millisecond - 1).Truncate(time.Millisecond) + time.Second + slowest; ttl > most {
		t.Errorf("%s: the key lives for %v, its rules need %v", what, ttl, need)
	}
	if ttl < need-late-time.Millisecond {
		t.Errorf("%s: the key lives for only %v, its rules need %v", what, ttl, need)
	}
}
