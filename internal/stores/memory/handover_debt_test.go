package memory

import (
	"context"
	"testing"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/testkit/storekit"
	"github.com/dianalimiter/diana/stores"
)

// TestHandoversEndInAnyOrder charges a key without Redis while calls with its debts are under
// way, which Redis then answers, rejects, or does not answer. Each charge is paid once, but for
// those in calls without an answer.
func TestHandoversEndInAnyOrder(t *testing.T) {
	for _, a := range []algorithms.Algorithm{&algorithms.FixedWindow{}, &algorithms.SlidingWindow{}, &algorithms.GCRA{}} {
		t.Run(a.Kind(), func(t *testing.T) {
			r := storekit.Seeded(t)
			for range 300 {
				c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: a, Spec: algorithms.Spec{Limit: 10_000, Window: storekit.Hour, Cost: 1}})
				c.Table = NewTable(c.Rules, 100)
				d := &debtor{r: c.Rules[0], n: TableOf(c).Snapshots(), c: c}
				for range 1 + r.IntN(40) {
					switch r.IntN(3) {
					case 0:
						d.charge(1 + r.Int64N(3))
					case 1:
						d.take()
					default:
						if len(d.underWay) > 0 {
							d.end(r.IntN(len(d.underWay)), r.IntN(3))
						}
					}
				}
				for len(d.underWay) > 0 {
					d.end(0, r.IntN(3))
				}
				d.take()
				if len(d.underWay) > 0 {
					d.end(0, answered)
				}
				if d.paid != d.charged-d.unknown {
					t.Fatalf("%d paid of %d charged, of which %d are unknown", d.paid, d.charged, d.unknown)
				}
			}
		})
	}
}

// debtor charges a key without Redis, and hands its debts over.
type debtor struct {
	r                      algorithms.Rule
	n                      *Snapshots
	c                      *stores.Counter
	underWay               []Handover
	charged, paid, unknown int64
}

// What may become of a debt.
const (
	answered = iota
	rejected
	unanswered
	none // there was none
)

var debtorNow = Instant{Local: handoverStart, Shared: handoverStart, Tolerance: 1_000_000}

func (d *debtor) check(cost int64) *stores.Check {
	return &stores.Check{Zones: []stores.ZoneCheck{{
		Counter: d.c, Subject: stores.Subject{Key: stores.Key{Hi: 1, Lo: 2}}, Cost: cost, Enforced: stores.Enforced{Rules: d.c.Rules}, Results: make([]stores.Result, len(d.c.Rules)),
	}}}
}

func (d *debtor) charge(cost int64) {
	check := d.check(cost)
	d.n.Warm(&check.Zones[0], debtorNow)
	(&Store{Clock: func() int64 { return handoverStart }}).Decide(context.Background(), check)
	d.n.Owe(&check.Zones[0], cost, handoverStart, handoverStart)
	d.charged += cost
}

func (d *debtor) take() {
	if h, _ := d.n.Take(&d.check(1).Zones[0], debtorNow, false); h.Debts != nil {
		d.underWay = append(d.underWay, h)
	}
}

// end ends a call that is under way.
func (d *debtor) end(i, outcome int) {
	h := d.underWay[i]
	d.underWay = append(d.underWay[:i], d.underWay[i+1:]...)
	s := make(algorithms.State, d.r.Words())
	storekit.Merge(d.r, s, h.Debts[0], handoverStart)
	left, _ := d.r.Numbers(s, handoverStart)
	switch cost := d.r.Limit() - left; outcome {
	case answered:
		d.paid += cost
	case unanswered:
		d.unknown += cost
	}
	d.n.End(&d.check(1).Zones[0], &h, outcome != unanswered, outcome == rejected, handoverStart)
}

// TestSharedCounterIsNotOwed charges a key without Redis while there is no room for it, and other
// keys by the counter that it shares with them. When there is room, the key goes on from that
// counter, and owes no more than it was charged itself; also if a call with its debt from before was
// under way meanwhile, whatever became of it. One that was rejected is owed with what the key was charged
// since, though it counts no more.
func TestSharedCounterIsNotOwed(t *testing.T) {
	first, key, other := stores.Key{Hi: 1, Lo: 1}, stores.Key{Hi: 2, Lo: 2}, stores.Key{Hi: 3, Lo: 3}
	for _, outcome := range []int{none, answered, rejected, unanswered} {
		c := kit.NewTestCounter(t, "z", 0, false, nil, storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: algorithms.Spec{Limit: 10_000, Window: storekit.Hour, Cost: 1}})
		c.Table = NewTable(c.Rules, 1)
		now, n := debtorNow, TableOf(c).Snapshots()
		s := &Store{Clock: func() int64 { return now.Local }}
		charge := func(k stores.Key, cost int64, warm bool) {
			check := &stores.Check{Zones: []stores.ZoneCheck{{Counter: c, Subject: stores.Subject{Key: k}, Cost: cost, Enforced: stores.Enforced{Rules: c.Rules}, Results: make([]stores.Result, 1)}}}
			room := warm && n.Warm(&check.Zones[0], now)
			s.Decide(context.Background(), check)
			if room && !check.Zones[0].Overflowed {
				n.Owe(&check.Zones[0], cost, now.Shared, now.Local)
			}
		}
		z := &stores.ZoneCheck{Counter: c, Subject: stores.Subject{Key: key}, Enforced: stores.Enforced{Rules: c.Rules}}
		var before Handover
		if outcome != none {
			charge(key, 5, true)
			before, _ = n.Take(z, now, false)
			now.Local, now.Shared = now.Local+storekit.Hour, now.Shared+storekit.Hour
		}
		charge(first, 1, false)
		if outcome == none { // otherwise the key first meets what the others have charged
			charge(key, 1, true)
		}
		charge(other, 5000, false)
		charge(key, 1, true)
		TableOf(c).Reset(first)
		charge(key, 1, true)
		charge(key, 1, true)
		if outcome != none {
			n.End(z, &before, outcome != unanswered, outcome == rejected, now.Local)
		}
		charge(key, 1, true)
		h, _ := n.Take(z, now, false)
		if h.Debts == nil {
			t.Fatalf("outcome %d: the key owes nothing", outcome)
		}
		state := make(algorithms.State, c.Rules[0].Words())
		storekit.Merge(c.Rules[0], state, h.Debts[0], now.Shared)
		charged := int64(5)
		if outcome == rejected {
			charged += before.Cost
		}
		if left, _ := c.Rules[0].Numbers(state, now.Shared); 10_000-left > charged {
			t.Errorf("outcome %d: the key owes %d of %d that it was charged", outcome, 10_000-left, charged)
		}
	}
}

// TestLargeDebtOfSeveralRules has a key owe more than a log can hand over at once, beside rules that can,
// and rejects some of the parts. Each rule is charged all that it counted, once.
func TestLargeDebtOfSeveralRules(t *testing.T) {
	r := storekit.Seeded(t)
	spec := algorithms.Spec{Limit: 10_000, Window: storekit.Hour, Cost: 1}
	c := kit.NewTestCounter(t, "z", 0, false, nil,
		storekit.RuleSpec{Alg: &algorithms.FixedWindow{}, Spec: spec},
		storekit.RuleSpec{Alg: &algorithms.SlidingLog{}, Spec: spec},
		storekit.RuleSpec{Alg: &algorithms.SlidingWindow{}, Spec: spec})
	for range 20 {
		c.Table = NewTable(c.Rules, 100)
		d := &debtor{r: c.Rules[0], n: TableOf(c).Snapshots(), c: c}
		for d.charged < 6000 {
			d.charge(1 + r.Int64N(2000))
		}
		charged := make([]int64, len(c.Rules))
		for calls, more := 0, true; more; calls++ {
			var h Handover
			if h, more = d.n.Take(&d.check(1).Zones[0], debtorNow, false); calls > 100 {
				t.Fatalf("%d of %d are charged after %d calls", charged, d.charged, calls)
			}
			if h.Debts[1][0] > 2048 {
				t.Fatalf("%d timestamps in one call", h.Debts[1][0])
			}
			rejected := r.IntN(3) == 0
			if d.n.End(&d.check(1).Zones[0], &h, true, rejected, handoverStart); rejected {
				more = true
				continue
			}
			charged[0] += h.Debts[0][1]
			charged[1] += h.Debts[1][0]
			for _, n := range h.Debts[2][1:] {
				charged[2] += n
			}
		}
		for i, got := range charged {
			if got != d.charged {
				t.Errorf("rule %d: %d charged, want %d", i, got, d.charged)
			}
		}
	}
}

// TestOwedIsNotMixedWithWhatIsKnown has a debt rejected that drains, and then Redis report much more of the
// key. Only what is left of the debt is owed.
func TestOwedIsNotMixedWithWhatIsKnown(t *testing.T) {
	l := newLearner(t)
	now := Instant{Local: handoverStart, Shared: handoverStart, Tolerance: 1_000_000}
	d := &debtor{r: l.z.Counter.Rules[0], n: l.n, c: l.z.Counter}
	d.charge(5)
	h, _ := l.n.Take(l.z, now, false)
	l.n.End(l.z, &h, true, true, now.Local)
	now.Local += storekit.Hour * 3 / 100 // 3 of 5 drain
	now.Shared = now.Local
	l.learn(now.Local, 0, storekit.Hour/2, 100)
	l.n.Warm(l.z, now)
	if h, _ = l.n.Take(l.z, now, false); h.Cost != 2 {
		t.Errorf("%d are owed of 5, of which 3 have drained", h.Cost)
	}
}
