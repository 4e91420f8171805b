package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/redistest"
	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/storestest"
)

// zoneTrace is a random zone with a successor whose limits differ.
type zoneTrace struct {
	counters   [2]*stores.Counter
	algorithms []string
}

func randomZones(tb testing.TB, r *rand.Rand, name string, changes, logs bool) []zoneTrace {
	zones := make([]zoneTrace, 1+r.IntN(3))
	hold := r.IntN(4) == 0
	for z := range zones {
		var specs, later []storestest.RuleSpec
		for range r.IntN(5) + 1 {
			s := storestest.RandomRule(r, !hold, hold)
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
		first := storestest.NewTestCounter(tb, zone, inFlight, hold, nil, specs...)
		zones[z].counters = [2]*stores.Counter{first, storestest.NewTestCounter(tb, zone, inFlight, hold, first.Table, later...)}
	}
	return zones
}

func askOf(zones []zoneTrace, which int, key uint64, cost int64) *stores.Check {
	check := &stores.Check{}
	for z := range zones {
		k := stores.Key{Hi: key, Lo: 7}
		check.Zones = append(check.Zones, stores.ZoneCheck{Counter: zones[z].counters[which], Key: k, Tag: k, Cost: cost, Shadow: z == 2})
	}
	return check
}

// TestStoresAgree takes random zones over random traces with explicit time:
// edges to the microsecond, long gaps, steps of the clock both ways, limits that
// change to and fro. Redis and the local store give the same verdicts and
// numbers and keep the same states.
func TestStoresAgree(t *testing.T) {
	srv := redistest.Start(t)
	v := &virtual{client: srv.Client()}
	shared := newVirtualShared(t, srv, v)
	local := &memory.Store{Clock: v.clock}
	r := storestest.Seeded(t)
	const perRound = 200
	ops := storestest.Operations(t, 20_000)
	verdicts := make(map[string]int)
	for round := range ops / perRound {
		tr := &trace{verdicts: verdicts, t: t, v: v, shared: shared, local: local, r: r, steps: round%3 == 1, changes: round%2 == 1, owes: 30}
		logs := round%12 == 1 || round%12 == 4
		if logs { // of what is over, what the rings still hold may differ, which only debts and steps together bring out
			tr.owes = 5
		}
		tr.zones = randomZones(t, r, "z"+strconv.Itoa(round), tr.changes, logs)
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
		v.forget(t)
	}
	t.Logf("%d asks, 0 differences; verdicts compared: %v", ops, verdicts)
}

// trace is one trace through both stores.
type trace struct {
	t       *testing.T
	v       *virtual
	shared  *Store
	local   *memory.Store
	r       *rand.Rand
	zones   []zoneTrace
	steps   bool // the clock steps, too
	changes bool // the limits change to and fro
	owes    int  // a debt is charged before one in so many steps
	open    [][2]*stores.Check
	hints   []int64 // instants at which something happens

	verdicts map[string]int // by algorithm
}

func (tr *trace) step(what string) {
	tr.pass()
	if tr.r.IntN(tr.owes) == 0 {
		tr.owe(what)
	}
	which, key, cost := tr.r.IntN(2), uint64(1+tr.r.IntN(2)), int64(1)
	if tr.r.IntN(3) == 0 {
		cost = 1 + tr.r.Int64N(4)
	}
	check, b := askOf(tr.zones, which, key, cost), askOf(tr.zones, which, key, cost)
	tr.v.tick()
	tr.shared.Decide(context.Background(), check)
	tr.local.Decide(context.Background(), b)
	compareAsks(tr.t, what, check, b)
	for z := range tr.zones {
		for _, name := range tr.zones[z].algorithms {
			tr.verdicts[name]++
		}
	}
	for i := range check.Zones {
		if tr.r.IntN(8) == 0 {
			compareStates(tr.t, what, tr.v, "diana", &check.Zones[i])
		}
		for _, res := range check.Zones[i].Results {
			tr.hints = append(tr.hints, tr.v.now+max(0, res.Retry), tr.v.now+res.Reset)
		}
	}
	if n := len(tr.hints); n > 20 {
		tr.hints = tr.hints[n-20:]
	}
	if check.Admitted {
		tr.open = append(tr.open, [2]*stores.Check{check, b})
	}
	for len(tr.open) > 0 && (tr.r.IntN(3) == 0 || len(tr.open) > 8) {
		tr.finish(tr.r.Int64N(4))
	}
}

// pass lets time pass: mostly to where something happens, or next to it.
func (tr *trace) pass() {
	next := tr.v.now
	switch n := tr.r.IntN(10); {
	case n < 4 || len(tr.hints) == 0:
	case n < 7:
		next = max(next, tr.hints[tr.r.IntN(len(tr.hints))]+tr.r.Int64N(3)-1)
	case n < 9:
		next += tr.r.Int64N(5000)
	default:
		next += tr.r.Int64N(200_000)
	}
	if tr.steps && tr.r.IntN(50) == 0 {
		next += tr.r.Int64N(7_200_000_000) - 3_600_000_000
	}
	if d := next - tr.v.now; d < 0 || d > 5_000_000 {
		for len(tr.open) > 0 { // in Redis their places would lapse
			tr.finish(0)
		}
	}
	tr.v.now = next
}

// mayStep sets the clock, perhaps: by up to an hour either way, or back by about
// a window.
func (tr *trace) mayStep() {
	if !tr.steps || len(tr.open) > 0 || tr.r.IntN(3) > 0 {
		return
	}
	if tr.r.IntN(3) == 0 {
		tr.v.now += tr.r.Int64N(7_200_000_000) - 3_600_000_000
	} else {
		tr.v.now -= tr.r.Int64N(50_000)
	}
}

// finish ends one of the open requests in both stores.
func (tr *trace) finish(charge int64) {
	i := tr.r.IntN(len(tr.open))
	o := tr.open[i]
	tr.open = append(tr.open[:i], tr.open[i+1:]...)
	for z := range o[0].Zones {
		a, b := &o[0].Zones[z], &o[1].Zones[z]
		place, _ := a.Holds()
		if !a.Charged || !place && charge == 0 {
			continue
		}
		tr.v.tick()
		tr.shared.Finish(context.Background(), a, charge)
		tr.local.Finish(context.Background(), b, charge)
	}
}

// owe charges in both stores what an instance with half of the limits might have
// admitted alone.
func (tr *trace) owe(what string) {
	k := stores.Key{Hi: uint64(1 + tr.r.IntN(2)), Lo: 7}
	z := &stores.ZoneCheck{Counter: tr.zones[tr.r.IntN(len(tr.zones))].counters[tr.r.IntN(2)], Key: k, Tag: k}
	z.Rules = z.Counter.Rules
	debts := make([][]int64, len(z.Rules))
	for i, r := range shareOf(z.Counter, 2e6) {
		// It took a while to arrive, or that instance's clock is ahead.
		debts[i] = randomDebt(tr.r, r.(algorithms.Portable), tr.v.now-tr.r.Int64N(r.Window())+tr.r.Int64N(1+r.Window()/4))
	}
	tr.mayStep()
	oweBoth(tr.t, what, tr.v, tr.shared, z, debts)
	tr.mayStep() // what a debt did to a log may tell only then
}

// oweBoth charges debts in Redis and in the local store.
func oweBoth(t *testing.T, what string, v *virtual, shared *Store, z *stores.ZoneCheck, debts [][]int64) {
	t.Helper()
	v.tick()
	if _, err := shared.conn.call(context.Background(), namesOf("diana", z)[:1], appendDebts(nil, z, debts)); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	memory.Update(z, v.now, func(i int) int64 { return int64(len(debts[i])) }, func(i int, s algorithms.State) {
		r := z.Rules[i]
		r.Repair(s, v.now)
		r.(algorithms.Portable).Merge(s, debts[i], v.now)
	})
	compareStates(t, what+", after a debt", v, "diana", z)
}

// randomDebt charges a rule at random instants of the last window or two.
func randomDebt(r *rand.Rand, rule algorithms.Portable, now int64) []int64 {
	words := rule.Words()
	if _, ok := rule.(algorithms.Growing); ok {
		words = 2048
	}
	s, base := make(algorithms.State, words), make([]int64, rule.NoteWords())
	at := now - r.Int64N(2*rule.Window())
	for range r.IntN(5) {
		cost := min(1+r.Int64N(4), rule.Capacity())
		rule.Repair(s, at)
		if rule.Judge(s, at, cost, 0).Admit {
			rule.Charge(s, at, cost, 0)
		}
		at += r.Int64N(now - at + 1)
	}
	debt, _ := rule.Debt(s, base, now)
	return debt
}

// TestQueuesOfOneZone has several queues of one zone delay a request. All of them
// are charged as of the longest delay, in both stores.
func TestQueuesOfOneZone(t *testing.T) {
	s := newVirtualAt(t)
	local := &memory.Store{Clock: s.v.clock}
	sp := algorithms.Spec{Limit: 10, Window: 1000, Cost: 1, MaxWait: 100_000, MaxTurn: 1_000_000}
	slow := sp
	slow.Limit = 3
	c := storestest.NewTestCounter(t, "queues", 0, false, nil, storestest.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: slow}, storestest.RuleSpec{Alg: &algorithms.LeakyBucket{}, Spec: sp})
	for step := range 20 {
		s.v.now = holdsBegin + int64(step/4)*700
		check, b := storestest.Items(1, c), storestest.Items(1, c)
		s.v.tick()
		s.Decide(context.Background(), check)
		local.Decide(context.Background(), b)
		what := fmt.Sprint("step ", step)
		compareAsks(t, what, check, b)
		compareStates(t, what, s.v, "diana", &check.Zones[0])
	}
}

// TestStoresAgreeInRealTime does the same by Redis' own clock, with the script
// exactly as it is, and looks at the keys' times to live.
func TestStoresAgreeInRealTime(t *testing.T) {
	srv := redistest.Start(t)
	now := int64(0)
	clock := func() int64 { return now }
	shared, local := newTestShared(t, srv, func() int64 { return storestest.Hour }), &memory.Store{Clock: clock}
	client := srv.Client()
	r := storestest.Seeded(t)
	for round := range 20 {
		zones := randomZones(t, r, "z"+strconv.Itoa(round), false, false)
		for step := range 100 {
			what := fmt.Sprintf("round %d step %d", round, step)
			check, b := askOf(zones, 0, 1, 1), askOf(zones, 0, 1, 1)
			sent := time.Now()
			shared.Decide(context.Background(), check)
			now = check.Now
			local.Decide(context.Background(), b)
			compareAsks(t, what, check, b)
			for i := range check.Zones {
				z := &check.Zones[i]
				if place, _ := z.Holds(); z.Charged && place {
					shared.Finish(context.Background(), z, 0)
					local.Finish(context.Background(), &b.Zones[i], 0)
				} else if z.Charged {
					ttl := client.PTTL(context.Background(), namesOf("diana", z)[0]).Val()
					checkTTL(t, what, ttl, z, time.Since(sent))
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

// checkTTL sees that a key lives as long as its rules need, and at most a
// second longer. It was read at most late after the decision.
func checkTTL(t *testing.T, what string, ttl time.Duration, z *stores.ZoneCheck, late time.Duration) {
	t.Helper()
	var need time.Duration
	for _, res := range z.Results {
		need = max(need, time.Duration(res.Reset)*time.Microsecond)
	}
	if most := (need + time.Millisecond - 1).Truncate(time.Millisecond) + time.Second; ttl > most {
		t.Errorf("%s: the key lives for %v, its rules need %v", what, ttl, need)
	}
	if ttl < need-late-time.Millisecond {
		t.Errorf("%s: the key lives for only %v, its rules need %v", what, ttl, need)
	}
}
