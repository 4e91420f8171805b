package outage

import (
	"maps"
	"testing"
	"time"

	"github.com/dianalimiter/diana/internal/stores/memory"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestCutReply hands over the debts of two keys in one call, whose reply ends after the first of them. That one
// has ended, and nothing is known of the other.
func TestCutReply(t *testing.T) {
	for name, c := range map[string]struct {
		fails   error
		refuses Part
		want    map[stores.Uncharged]int64
		owes    int
	}{
		"charged":        {nil, 0, map[stores.Uncharged]int64{stores.UnchargedUnknown: 1}, 0},
		"rejected alone": {errRejected, 0, map[stores.Uncharged]int64{stores.UnchargedUnknown: 1}, 1},
		"refused":        {nil, PartDebts, map[stores.Uncharged]int64{stores.UnchargedUnknown: 1, stores.UnchargedReset: 1}, 0},
	} {
		r, f, counter := newFallback(t, false)
		for n := range uint64(2) {
			if !f.decide(counter, key(n)) {
				t.Fatal("denied alone")
			}
		}
		r.breaks, r.fails, r.refuses, r.cut = errUnknown, c.fails, c.refuses, 1
		f.Hands.Pay(t.Context())
		debtors, _ := memory.TableOf(counter).Snapshots().Debtors(make([]stores.Key, 0, 2), memory.Cursor{})
		if !maps.Equal(r.uncharged, c.want) || len(debtors) != c.owes {
			t.Errorf("the first is %s: given up %v, and %d keys owe; want %v, %d", name, r.uncharged, len(debtors), c.want, c.owes)
		}
	}
}

// TestEndsOfAHandover has a handover of a snapshot that Redis has lost, of a debt, of both, and of a block end in all ways.
// The key is then, and the debt counts, as the table in handovers.go says.
func TestEndsOfAHandover(t *testing.T) {
	type end struct {
		name    string
		refused Part
		alone   error // of this handover
		call    error
		late    *Fate

		told, again, owes bool             // the snapshot or block is there, the snapshot is told again, and the debt is owed
		why               stores.Uncharged // the debt is given up; empty: it is not
	}
	ran, notRun := &Fate{Known: true, Ran: true}, &Fate{Known: true}
	const kept = stores.Uncharged("")
	for _, e := range []end{
		{"has run", 0, nil, nil, nil, true, false, false, kept},
		{"was not sent", 0, nil, errAway, nil, true, true, true, kept},
		{"was rejected", 0, nil, errRejected, nil, true, true, true, kept},
		{"is unknown", 0, nil, errUnknown, nil, true, true, false, stores.UnchargedUnknown},
		{"has run late", 0, nil, errUnknown, ran, true, false, false, kept},
		{"was late, and has not run", 0, nil, errUnknown, notRun, true, true, true, kept},
		{"is refused as to the snapshot", PartTold, nil, nil, nil, false, false, false, kept},
		{"is refused as to the debt", PartDebts, nil, nil, nil, true, false, false, stores.UnchargedReset},
		{"is refused", PartTold | PartDebts, nil, nil, nil, false, false, false, stores.UnchargedReset},
		{"was rejected alone", 0, errRejected, nil, nil, true, true, true, kept},
		{"failed alone, and is unknown", 0, errUnknown, nil, nil, true, true, false, stores.UnchargedUnknown},
	} {
		for _, has := range []struct{ snapshot, debt bool }{{true, false}, {false, true}, {true, true}} {
			r, f, c := newFallback(t, false)
			if has.snapshot {
				f.learn(c, key(1), 5)
				r.now++
				f.learn(c, key(1), 1) // Redis has lost it
			}
			r.now++
			if has.debt && !f.decide(c, key(1)) {
				t.Fatal("denied alone")
			}
			check := stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: key(1), Tag: key(1)}, Cost: 1}}}
			f.Look(&check, r.now)
			all := f.Hands.TakeAll(&check, r.Now(key(1)))
			if len(all) != 1 || (all[0].Told != nil) != has.snapshot || (all[0].Debts != nil) != has.debt {
				t.Fatalf("%+v is handed over of %+v", all, has)
			}
			r.fate = e.late
			if e.call == nil {
				f.Hands.Answered(&all[0], e.refused, e.alone)
			}
			f.Hands.EndCall(all, e.call)
			known, due, _ := memory.TableOf(c).Snapshots().Look(&check.Zones[0], r.now)
			debtors, _ := memory.TableOf(c).Snapshots().Debtors(make([]stores.Key, 0, 1), memory.Cursor{})
			if owes := len(debtors) == 1; owes != (has.debt && e.owes) || known != (has.snapshot && e.told) || due != (has.snapshot && e.again || owes) {
				t.Errorf("%+v that %s: known %v, due %v, owes %v; want %v, again %v, %v", has, e.name, known, due, owes, has.snapshot && e.told, e.again, has.debt && e.owes)
			}
			for why, cost := range r.uncharged {
				if why != e.why || cost != 1 || !has.debt {
					t.Errorf("%+v that %s: %d is given up, because %v", has, e.name, cost, why)
				}
			}
			if want := has.debt && e.why != kept; (len(r.uncharged) > 0) != want {
				t.Errorf("%+v that %s: given up %v, want %v", has, e.name, len(r.uncharged) > 0, want)
			}
		}
		r, f, c := newFallback(t, false)
		c.Blocks, c.Blocked = []int64{storekit.Hour}, memory.NewBlocks(100)
		check := stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: key(1), Tag: key(1)}, Cost: 1}}}
		blocked := stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key(1)}, Block: stores.Block{Until: 2 * storekit.Hour, Span: storekit.Hour}}
		f.LearnBlock(&blocked, r.Now(key(1)))
		all := f.Hands.TakeAll(&check, r.Now(key(1)))
		if len(all) != 1 || all[0].Block == nil {
			t.Fatalf("%+v is handed over of a block", all)
		}
		if r.fate = e.late; e.call == nil {
			f.Hands.Answered(&all[0], e.refused, e.alone)
		}
		f.Hands.EndCall(all, e.call)
		next := f.Hands.TakeAll(&check, r.Now(key(1)))
		if told := len(next) == 1 && next[0].Block != nil; told != e.told || len(r.uncharged) > 0 {
			t.Errorf("a block that %s: told again %v, want %v; given up %v", e.name, told, e.told, r.uncharged)
		}
		if r.now = 2 * storekit.Hour; len(f.Hands.TakeAll(&check, r.Now(key(1)))) > 0 {
			t.Errorf("a block that %s is told after its end", e.name)
		}
	}
}

// sweepWalk leads a sweep through events, beside what the table in sweep.go says of it.
type sweepWalk struct {
	s    sweep
	now  time.Time
	loss int32
	last time.Time // when the last one began
	left int
}

// round is a round of handovers.
func (w *sweepWalk) round(holding bool) {
	if w.s.due(w.now, holding) {
		w.s.begin(w.now, []source{blocks{}, blocks{}})
	}
	if w.left == 0 && !holding && (w.loss == memoryLost || w.loss == keyMissing && w.now.Sub(w.last) >= sweepEvery) {
		w.loss, w.last, w.left = noLoss, w.now, 2
	}
}

// reach reaches a position in a source.
func (w *sweepWalk) reach(of memory.Cursor) {
	if w.s.current() == nil {
		return
	}
	if w.s.reached(of); of.Done() {
		w.left--
	}
}

// TestStatesOfASweep has each event meet a sweep in each state that events lead to, and then random ones. It is then in
// the state that the table in sweep.go says.
func TestStatesOfASweep(t *testing.T) {
	_, _, c := newFallback(t, false)
	_, done := memory.TableOf(c).Snapshots().Debtors(make([]stores.Key, 0, 1), memory.Cursor{})
	if !done.Done() {
		t.Fatal("the end of a table is not one")
	}
	type state struct {
		loss   int32
		left   int
		recent bool
	}
	storekit.Walk(t, []storekit.Event[*sweepWalk]{
		{Name: "hears of a missing key", Do: func(w *sweepWalk) { w.s.want(keyMissing); w.loss = max(w.loss, keyMissing) }},
		{Name: "hears of lost memory", Do: func(w *sweepWalk) { w.s.want(memoryLost); w.loss = memoryLost }},
		{Name: "has a round", Do: func(w *sweepWalk) { w.round(false) }},
		{Name: "has a round while a node holds", Do: func(w *sweepWalk) { w.round(true) }},
		{Name: "goes on", Do: func(w *sweepWalk) { w.reach(memory.Cursor{}) }},
		{Name: "ends a source", Do: func(w *sweepWalk) { w.reach(done) }},
		{Name: "waits", Do: func(w *sweepWalk) { w.now = w.now.Add(sweepEvery) }},
	}, func() *sweepWalk { return &sweepWalk{now: time.Now()} }, func(w *sweepWalk) state {
		return state{w.loss, w.left, w.now.Sub(w.last) < sweepEvery}
	}, func(w *sweepWalk, did string) {
		if loss, going := w.s.loss.Load(), w.s.going.Load(); loss != w.loss || going != (w.left > 0) || len(w.s.left) != w.left || w.s.unfinished() != (w.left > 0 || w.loss != noLoss) {
			t.Fatalf("a sweep that %sknows of loss %d, goes on %v with %d left; want %d, %d left", did, loss, going, len(w.s.left), w.loss, w.left)
		}
	})
}

// TestStoreThatEndsIsPaid ends a store with its zones. What they owe is charged as long as it is open, and
// then given up.
func TestStoreThatEndsIsPaid(t *testing.T) {
	r, f, c := newFallback(t, false)
	f.decide(c, key(1))
	r.breaks = errRejected
	f.Hands.End(true)
	_ = memory.TableOf(c).Destruct()
	f.Hands.Pay(t.Context())
	if len(r.uncharged) > 0 {
		t.Errorf("%v given up of a store that is open", r.uncharged)
	}
	r.breaks = nil
	if f.Hands.Pay(t.Context()); r.debts[key(1)] != 1 {
		t.Errorf("%d charged, want 1", r.debts[key(1)])
	}
	f.decide(c, key(2))
	f.Hands.Close()
	if r.uncharged[stores.UnchargedClosed] != 1 || len(r.uncharged) != 1 {
		t.Errorf("%v given up after the end, want 1 that is closed", r.uncharged)
	}
}

// TestDebtsOfAClosedStoreAreGivenUp has a store that is closed, and one that it follows, owe what a late
// reply or a last response says. Nobody charges it: it is reported.
func TestDebtsOfAClosedStoreAreGivenUp(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, closed *Fallback) *Fallback{
		"closed": func(_ *testing.T, closed *Fallback) *Fallback { return closed },
		"passed on": func(t *testing.T, closed *Fallback) *Fallback {
			t.Helper()
			_, f, _ := newFallback(t, false)
			f.Hands.PassOn(closed.Hands)
			return f
		},
	} {
		r, closed, c := newFallback(t, false)
		f := before(t, closed)
		closed.Hands.Close()
		f.decide(c, key(1))
		if r.uncharged[stores.UnchargedClosed] != 1 {
			t.Errorf("%s: %v are reported, want 1", name, r.uncharged)
		}
	}
}
