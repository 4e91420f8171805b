package exact_test

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// event is one request of a trace.
type event struct {
	now, cost int64
	peek      bool
	admitted  bool
}

// trace draws requests for a set of rules. It uses the verdicts so far to send
// requests exactly at their retry or one microsecond before.
type trace struct {
	rules  []oracle.Rule
	most   []int64 // maximum cost that each rule ever admits
	now    int64
	last   []oracle.Verdict
	events []event
}

// beginning draws the first instant: of today's clocks, or of a clock that started
// with the machine.
func beginning(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 1_800_000_000 * second, 1_900_000_000*second - 1}),
		rapid.Int64Range(0, 1<<51),
	).Draw(t, "beginning")
}

// requests draws the requests of a trace as two numbers each: a kind, and a size from
// which gaps and costs are derived. Kind 0 is no request, so that a failing trace
// shrinks to the requests it needs.
func requests(t *rapid.T) (kinds, sizes []int64) {
	n := rapid.SampledFrom([]int{120, 30, 400}).Draw(t, "requests")
	return rapid.SliceOfN(rapid.Int64Range(0, 1<<11-1), n, n).Draw(t, "kinds"), rapid.SliceOfN(size(), n, n).Draw(t, "sizes")
}

func size() *rapid.Generator[int64] { return rapid.Int64Range(0, 1<<34) }

func newTrace(beginning int64, rules []oracle.Rule, compiled []algorithms.Rule) *trace {
	tr := &trace{rules: rules, now: beginning, last: make([]oracle.Verdict, len(rules))}
	for _, c := range compiled {
		tr.most = append(tr.most, c.Capacity())
	}
	return tr
}

// lastInstant is in 2112. Beyond 2^53, Redis could not tell instants from each other.
const lastInstant = 1 << 52

// next returns the request of two numbers and advances the clock to it.
func (tr *trace) next(kind, size int64) event {
	i := int(kind>>8&7) % len(tr.rules)
	tr.now = min(tr.now+tr.gap(kind&15, size, i), max(tr.now, lastInstant))
	e := event{now: tr.now, cost: max(1, tr.cost(kind>>4&7, size, i)), peek: kind>>7&1 == 1 && size%4 == 3}
	return e
}

// done records the result of a request.
func (tr *trace) done(e event, admitted bool, verdicts []oracle.Verdict) {
	e.admitted = admitted
	tr.events = append(tr.events, e)
	tr.last = verdicts
}

// gap returns the time to the next request: zero, random, or an edge of the i-th rule
// or of its last verdict.
func (tr *trace) gap(kind, size int64, i int) int64 {
	r, last := tr.rules[i], tr.last[i]
	pace := (r.Window + r.Limit - 1) / r.Limit
	switch kind {
	case 1:
		return size % 10
	case 2:
		return size % (r.Window + 1)
	case 3:
		return max(0, last.RetryAfter)
	case 4:
		return max(0, last.RetryAfter-1)
	case 5:
		return max(0, tr.longest())
	case 6:
		return max(0, tr.longest()-1)
	case 7:
		return last.ResetAfter
	case 8:
		return max(0, last.ResetAfter-1)
	case 9:
		return r.Window - size&1
	case 10:
		return toNext(tr.now, r) - size&1
	case 11:
		return pace - size&1
	case 12:
		return size % (2*pace + 1)
	case 13:
		return r.Window * (size % 20)
	case 14:
		return size % (r.Window/10 + 1)
	}
	return 0
}

// longest returns the time until all rules admit.
func (tr *trace) longest() (longest int64) {
	for _, v := range tr.last {
		longest = max(longest, v.RetryAfter)
	}
	return longest
}

// toNext returns the time to the next multiple of the rule's time unit.
func toNext(now int64, r oracle.Rule) int64 {
	unit := r.Window
	switch {
	case r.Step > 0:
		unit = r.Step
	case r.Algorithm == "sliding_window":
		unit = part(r)
	}
	return unit - now%unit
}

// cost returns mostly 1, otherwise about what remains in the i-th rule or about the
// maximum that all rules ever admit.
func (tr *trace) cost(kind, size int64, i int) int64 {
	smallest := tr.most[0]
	for _, most := range tr.most {
		smallest = min(smallest, most)
	}
	switch kind {
	case 4:
		return 1 + size%smallest
	case 5:
		return tr.last[i].Remaining + size&1
	case 6:
		return smallest + size&1
	case 7:
		return 1 + size%(tr.most[i]+1)
	}
	return 1
}

// String returns the trace so far, one request per line.
func (tr *trace) String() string {
	var b strings.Builder
	for _, r := range tr.rules {
		fmt.Fprintf(&b, "\nrule %+v", r)
	}
	for _, e := range tr.events {
		fmt.Fprintf(&b, "\nat %d: cost %d, admitted %v, only looked %v", e.now, e.cost, e.admitted, e.peek)
	}
	return b.String()
}
