package redis

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/stores/outage"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// handOver hands over to both stores what an instance might know of a key, or what one
// with half of the limits might have admitted in the fallback, or both.
func (tr *trace) handOver(what string) {
	k := stores.Key{Hi: uint64(1 + tr.r.IntN(2)), Lo: 7}
	z := &stores.ZoneCheck{Counter: tr.zones[tr.r.IntN(len(tr.zones))].counters[tr.r.IntN(2)], Subject: stores.Subject{Key: k, Tag: k}}
	z.Rules = z.Counter.Rules
	var set, lag int64 // by how much Redis' clock was set, and how much of that the snapshots' times lag
	if tr.r.IntN(4) == 0 {
		set = tr.r.Int64N(1_000_000_000) - 500_000_000
		lag = set * tr.r.Int64N(2)
	}
	h := &memory.Handover{Time: tr.v.now - set}
	which := 1 + tr.r.IntN(3)
	for i, r := range z.Rules {
		// The handover arrives late, or that instance's clock is ahead.
		at := tr.v.now - tr.r.Int64N(r.Window()) + tr.r.Int64N(1+r.Window()/4)
		if which&handTold != 0 {
			h.Told = append(h.Told, randomSnapshot(tr.r, r.(algorithms.Handover), at-lag))
		}
		if which&handDebts != 0 {
			h.Debts = append(h.Debts, randomDebt(tr.r, z.Counter.Share(2e6)[i].(algorithms.Handover), r, at))
		}
	}
	tr.maybeStep()
	handOver(tr.t, what, tr.v, tr.shared, tr.ledger, z, h)
	tr.maybeStep() // which may reveal what the debt did to a log
}

const handTolerance = 2_000_000

// handOver hands over to Redis and to the ledger, and compares them.
func handOver(t *testing.T, what string, v *virtual, shared *Store, l *storekit.Ledger, z *stores.ZoneCheck, h *memory.Handover) {
	t.Helper()
	v.tick()
	names := []string{namesOf("diana", z)[0], resetName("diana", z)}
	r, err := shared.conn.callOnce(context.Background(), names, appendHandover(nil, &outage.Handover{Handover: *h, Zone: *z, Tolerance: handTolerance}, &shared.conn.at(z.Tag).clock))
	if err != nil || r.byte() != 0 {
		t.Fatalf("%s: %v, or refused", what, err)
	}
	move := v.now - h.Time
	if max(move, -move) <= handTolerance {
		move = 0
	}
	room := func(int) int64 { return 4096 }
	l.Update(z, v.now, room, func(i int, s algorithms.State) {
		z.Rules[i].Repair(s, v.now)
		algorithms.Follow(z.Rules[i], s, v.now)
		if h.Told != nil {
			putBack(z.Rules[i].(algorithms.Handover), s, h.Told[i], move, v.now)
		}
	})
	if h.Debts != nil {
		larger := &stores.ZoneCheck{Counter: z.Counter, Subject: z.Subject, Enforced: stores.Enforced{Rules: withRoom(t, z.Rules)}}
		l.Update(larger, v.now, room, func(i int, s algorithms.State) {
			storekit.Merge(z.Rules[i], s, h.Debts[i], v.now)
		})
	}
	compareStates(t, what+", after a handover", v, l, z)
}

// TestHandoverByAHigherLimit hands over to a state that was written under a lower limit, alone and beside one that a clock
// ahead of this one has written: what was used drains at the higher limit from then on.
func TestHandoverByAHigherLimit(t *testing.T) {
	for _, back := range []int64{0, 3_000} { // by how much the clock is set back, in us
		s := newVirtualStore(t)
		window := algorithms.Spec{Limit: 18, Window: 1_000, Cost: 1}
		slow, fast := algorithms.Spec{Limit: 16, Window: 25_340, Cost: 1}, algorithms.Spec{Limit: 280, Window: 25_340, Cost: 1}
		low := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 21}, Spec: slow}, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: window})
		high := kit.NewTestCounter(t, "z", 0, false, low.Table, storekit.RuleSpec{Alg: &algorithms.GCRA{Burst: 28}, Spec: fast}, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: window})
		ledger := &storekit.Ledger{Clock: s.v.clock}
		s.v.now = virtualStart
		check, same := storekit.CheckOfKey(low, 1), storekit.CheckOfKey(low, 1)
		check.Zones[0].Cost, same.Zones[0].Cost = 12, 12
		s.v.tick()
		s.Decide(context.Background(), check)
		ledger.Decide(context.Background(), same)
		s.v.now += 100 - back
		z := &stores.ZoneCheck{Counter: high, Subject: check.Zones[0].Subject, Enforced: high.Whole()}
		handOver(t, fmt.Sprint("set back by ", back, " us"), s.v, s.Store, ledger, z, &memory.Handover{Time: s.v.now, Told: [][]int64{{0, 0, 0, 0}, {0, 0}}})
		if limit := ledger.States(z)[0][2]; limit != 280 {
			t.Errorf("set back by %d us: the limit of the state is %d, want 280", back, limit)
		}
	}
}

// withRoom returns the rules with logs of a greater limit, whose states have room for debts above twice
// that of the rules, which Redis keeps.
func withRoom(t *testing.T, rules []algorithms.Rule) []algorithms.Rule {
	t.Helper()
	rules = slices.Clone(rules)
	for i, r := range rules {
		if _, grows := r.(algorithms.Growing); !grows {
			continue
		}
		larger, err := new(algorithms.SlidingLog).Compile(algorithms.Spec{Limit: 4096, Window: r.Window(), Cost: 1})
		if err != nil {
			t.Fatal(err)
		}
		rules[i] = larger
	}
	return rules
}

// putBack raises a state to a snapshot whose times are moved by move.
func putBack(r algorithms.Handover, s algorithms.State, told []int64, move, now int64) {
	snap := slices.Clone(told)
	r.Shift(snap, move, now)
	if _, grows := r.(algorithms.Growing); !grows {
		raised := slices.Clone(s)
		r.Repair(snap, now)
		r.Overdraw(snap, now, 0)
		r.Overdraw(raised, now, 0)
		if r.Raise(raised, snap, now) || len(s) == 2 { // a fixed_window may begin earlier
			copy(s, raised)
		}
		return
	}
	// The i-th newest timestamp is the later of the two.
	stamps := lastStamps(s, s[0], now-r.Window())
	slices.Reverse(stamps)
	had := slices.Clone(stamps)
	var known []int64
	for runs := snap[5:]; len(runs) > 0; runs = runs[2:] {
		for range runs[0] {
			known = append(known, runs[1]-max(0, snap[6]-now-r.Args(now)[3]))
		}
	}
	for i, at := range known {
		if at <= now-r.Window() {
			break
		}
		if i < len(stamps) {
			stamps[i] = max(stamps[i], at)
		} else {
			stamps = append(stamps, at)
		}
	}
	if slices.Equal(stamps, had) {
		return
	}
	clear(s)
	for _, at := range slices.Backward(stamps) {
		r.Charge(s, at, 1, 0)
	}
}

// charged returns the state of a rule that was charged at random instants of the last
// window or two.
func charged(r *rand.Rand, rule algorithms.Rule, now int64) algorithms.State {
	words := rule.Words()
	if _, ok := rule.(algorithms.Growing); ok {
		words = 2048
	}
	s := make(algorithms.State, words)
	at := now - r.Int64N(2*rule.Window())
	for range r.IntN(8) {
		cost := min(1+r.Int64N(4), rule.Capacity())
		rule.Repair(s, at)
		if rule.Judge(s, at, cost, 0).Admit {
			rule.Charge(s, at, cost, 0)
		}
		at += r.Int64N(now - at + 1)
	}
	return s
}

func randomDebt(r *rand.Rand, share algorithms.Handover, full algorithms.Rule, now int64) []int64 {
	s := charged(r, share, now)
	owed, rest := share.Owed(s, math.MaxInt64, now)
	return share.Debt(s, owed, rest, full, now)
}

func randomSnapshot(r *rand.Rand, rule algorithms.Handover, now int64) []int64 {
	snap, s := make([]int64, rule.SnapshotWords()), charged(r, rule, now)
	g, grows := rule.(algorithms.Growing)
	if !grows {
		rule.Snapshot(snap, s, now)
		return snap
	}
	// A view is charged once for each timestamp.
	view := make(algorithms.State, g.View().Words())
	for _, at := range liveStamps(s, rule, now) {
		g.View().Charge(view, at, 1, 0)
	}
	rule.Snapshot(snap, view, now)
	return snap
}

// TestWarmedLogIsInOrder raises logs to snapshots: the timestamps stay in order, and those that
// have left the window are gone, so that a clock that is set back does not bring them back.
func TestWarmedLogIsInOrder(t *testing.T) {
	r := storekit.Seeded(t)
	rule, err := new(algorithms.SlidingLog).Compile(algorithms.Spec{Limit: 40, Window: 1_000_000, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
	h, raised := rule.(algorithms.Handover), 0
	for range 2000 {
		now := storekit.Hour + r.Int64N(storekit.Hour)
		s := charged(r, rule, now)
		had := len(lastStamps(s, s[0], now-rule.Window()))
		h.Warm(s, randomSnapshot(r, h, now), rule, now)
		all := lastStamps(s, s[0], -1)
		if !slices.IsSorted(all) {
			t.Fatalf("at %d: timestamps %v", now, all)
		}
		if had == len(lastStamps(s, s[0], now-rule.Window())) {
			continue
		}
		raised++
		for _, at := range all {
			if at != 0 && at <= now-rule.Window() {
				t.Fatalf("at %d: %d in %v has left the window", now, at, all)
			}
		}
	}
	if raised == 0 {
		t.Error("no log was raised")
	}
}
