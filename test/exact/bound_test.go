package exact_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// span measures the maximum cost in any half-open interval of a length.
type span struct {
	length   int64
	at, cost []int64 // the requests in the interval that ends now
	sum      int64
	most     int64
}

// add records a cost at an instant that is not before the last one.
func (s *span) add(at, cost int64) {
	s.at, s.cost, s.sum = append(s.at, at), append(s.cost, cost), s.sum+cost
	for s.at[0] <= at-s.length {
		s.sum -= s.cost[0]
		s.at, s.cost = s.at[1:], s.cost[1:]
	}
	s.most = max(s.most, s.sum)
}

// interval returns the length of the intervals that a rule bounds: its window, or the
// shortest of its periods. The year of 1981 was an hour and a half shorter on Lord Howe Island.
func interval(r oracle.Rule) int64 {
	if r.Algorithm != "calendar" {
		return r.Window
	}
	days := map[string]int64{"day": 1, "week": 7, "month": 28, "year": 365}[r.Period]
	return days*day - 2*hour
}

// bound returns the maximum cost that a rule may admit in any [interval], by
// docs/internals/arithmetic.md.
func bound(r oracle.Rule, c algorithms.Rule) int64 {
	switch {
	case r.Algorithm == "fixed_window" && r.Align, r.Algorithm == "calendar":
		return 2 * r.Limit
	case r.Algorithm == "fixed_window":
		return 2*r.Limit - 1
	case r.Algorithm == "sliding_window" || r.Algorithm == "sliding_log":
		return r.Limit
	}
	return c.Capacity() + r.Limit
}

// worst is the interval that came closest to its bound.
type worst struct {
	most, bound int64
	rule        oracle.Rule
}

// worsts are the worst intervals by kind of rule.
type worsts map[string]worst

func (w worsts) see(what string, most, bound int64, r oracle.Rule) {
	switch {
	case r.Align:
		what = "aligned " + what
	case r.Step > 0:
		what = "stepped " + what
	case r.NoDelay:
		what = "undelayed " + what
	}
	what = r.Algorithm + ", " + what
	if last, ok := w[what]; !ok || float64(most)*float64(last.bound) > float64(last.most)*float64(bound) {
		w[what] = worst{most, bound, r}
	}
}

// watched is a key whose admissions are measured.
type watched struct {
	*key
	rules              []oracle.Rule
	arrivals, leavings []span
	greatest           int64
}

func watch(t fataler, rules []oracle.Rule) *watched {
	compiled, err := compile(rules)
	if err != nil {
		t.Fatalf("%v", err)
	}
	w := &watched{key: newKey(t, compiled), rules: rules}
	for _, r := range rules {
		w.arrivals = append(w.arrivals, span{length: interval(r)})
		w.leavings = append(w.leavings, span{length: interval(r)})
	}
	return w
}

// decide decides and measures what is admitted.
func (w *watched) decide(now, cost int64) (bool, []oracle.Verdict) {
	ok, verdicts := w.key.decide(now, cost)
	if !ok {
		return ok, verdicts
	}
	turn := int64(0)
	for _, v := range verdicts {
		turn = max(turn, v.Delay)
	}
	w.greatest = max(w.greatest, cost)
	for i := range w.rules {
		w.arrivals[i].add(now, cost)
		w.leavings[i].add(now+turn, cost)
	}
	return ok, verdicts
}

// check fails the test if more than a rule's bound was admitted, or left, in one
// window.
func (w *watched) check(found worsts, tr fmt.Stringer) {
	for i, r := range w.rules {
		most := bound(r, w.key.rules[i])
		if w.arrivals[i].most > most {
			w.t.Fatalf("rule %d admitted %d in one window, more than %d%v", i, w.arrivals[i].most, most, tr)
		}
		found.see("arriving", w.arrivals[i].most, most, r)
		if !delays(r) {
			continue
		}
		most = r.Limit + w.greatest
		if w.leavings[i].most > most {
			w.t.Fatalf("rule %d let %d leave in one window, more than %d%v", i, w.leavings[i].most, most, tr)
		}
		found.see("leaving", w.leavings[i].most, most, r)
	}
}

func TestBoundOfGCRA(t *testing.T)          { bounded(t, single("gcra")) }
func TestBoundOfTokenBucket(t *testing.T)   { bounded(t, single("token_bucket")) }
func TestBoundOfLeakyBucket(t *testing.T)   { bounded(t, single("leaky_bucket")) }
func TestBoundOfFixedWindow(t *testing.T)   { bounded(t, single("fixed_window")) }
func TestBoundOfSlidingWindow(t *testing.T) { bounded(t, single("sliding_window")) }
func TestBoundOfCalendar(t *testing.T)      { bounded(t, single("calendar")) }
func TestBoundOfSlidingLog(t *testing.T)    { bounded(t, single("sliding_log")) }
func TestBoundOfQueues(t *testing.T)        { bounded(t, drawQueues) }
func TestBoundOfMixed(t *testing.T)         { bounded(t, drawMixed) }

// bounded checks random and greedy traces against the bound.
func bounded(t *testing.T, draw func(*rapid.T) []oracle.Rule) {
	t.Parallel()
	found, requests := make(worsts), 0
	for want := operations(t); requests < want; {
		rapid.Check(t, func(t *rapid.T) {
			w := watch(t, draw(t))
			var tr fmt.Stringer
			if rapid.Bool().Draw(t, "greedy") {
				tr = w.attacked(t, &requests)
			} else {
				tr = w.random(t, &requests)
			}
			w.check(found, tr)
		})
	}
	t.Logf("%d requests; the worst windows, of the bound:", requests)
	for _, what := range slices.Sorted(maps.Keys(found)) {
		f := found[what]
		t.Logf("%s: %d of %d, by %+v", what, f.most, f.bound, f.rule)
	}
}

// random runs a trace of the kind that differential uses.
func (w *watched) random(t *rapid.T, n *int) fmt.Stringer {
	tr := newTrace(beginning(t), w.rules, w.key.rules)
	kinds, sizes := requests(t)
	for i := range kinds {
		if kinds[i] == 0 {
			continue
		}
		e := tr.next(kinds[i], sizes[i])
		ok, verdicts := w.decide(e.now, e.cost)
		tr.done(e, ok, verdicts)
		*n++
	}
	return tr
}
