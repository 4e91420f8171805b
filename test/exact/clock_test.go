package exact_test

import (
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// TestClockSteps sets the clock forward and back. From then on, no request may be
// denied for longer than one full bucket or window, and every step may admit at most
// one additional bound.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	sent, repairs := 0, 0
	for want := operations(t); sent < want; {
		rapid.Check(t, func(t *rapid.T) {
			r := drawRule(t, rapid.SampledFrom(everyAlgorithm).Draw(t, "algorithm"))
			compiled, err := compile([]oracle.Rule{r})
			if err != nil {
				t.Fatalf("%v", err)
			}
			c := &stepped{key: newKey(t, compiled), rule: r, clock: 1_800_000_000 * second}
			kinds, sizes := requests(t)
			for i := range kinds {
				c.next(kinds[i]&31, sizes[i])
			}
			sent, repairs = sent+len(kinds), repairs+c.repairs
		})
	}
	t.Logf("%d requests, %d repairs", sent, repairs)
	if repairs == 0 {
		t.Error("no state was ever repaired: want detected steps")
	}
}

// stepped is a key whose clock is set at random.
type stepped struct {
	*key
	rule           oracle.Rule
	clock, elapsed int64 // the clock, and the real time
	passed         []event
	steps          []int64 // when the clock was set
	repairs        int
}

// next advances the time or sets the clock, and sends a request.
func (c *stepped) next(kind, size int64) {
	r := c.rules[0]
	full := held(c.rule, r)
	step := map[int64]int64{
		1: -1, 2: -(size % (2*full + 1)), 3: -c.rule.Window, 4: -full - 2, 5: size % (2*full + 1), 6: -(size % (c.rule.Window + 1)),
	}[kind]
	if step != 0 {
		c.clock = max(0, c.clock+step)
		c.steps = append(c.steps, c.elapsed)
	}
	if kind > 16 {
		gap := size % (c.rule.Window/3 + 2)
		c.clock, c.elapsed = c.clock+gap, c.elapsed+gap
	}
	s := c.states[0]
	if r.Repair(s, c.clock) {
		c.repairs++
		c.repaired(s)
	}
	c.request(s, 1+size%r.Capacity()*(kind%2), full)
}

// repaired checks that the last admission counts as of this instant, or that a meter
// is full, and that the state needs no second repair.
func (c *stepped) repaired(s algorithms.State) {
	r, now := c.rule, c.clock
	want := r.Window
	switch {
	case r.Algorithm == "fixed_window" && r.Align:
		want = toNext(now, r)
	case r.Algorithm == "calendar":
		_, next := c.rules[0].(algorithms.Dated).Present(now)
		want = next - now
	case r.Algorithm == "sliding_window":
		want = held(r, c.rules[0]) - now%part(r)
	case r.Algorithm != "fixed_window" && r.Algorithm != "sliding_log":
		want = drain(r, c.rules[0].Capacity())
		if r.Step > 0 {
			want = (want+r.Step-1)/r.Step*r.Step - now%r.Step
		}
	}
	if _, reset := c.rules[0].Numbers(s, now); reset != want {
		c.t.Fatalf("%+v: repaired at %d it resets in %d, want %d", r, now, reset, want)
	}
	if c.rules[0].Repair(s, now) {
		c.t.Fatalf("%+v: repaired at %d it is repaired again: %v", r, now, s)
	}
}

func (c *stepped) request(s algorithms.State, cost, full int64) {
	r := c.rules[0]
	v := r.Judge(s, c.clock, cost, 0)
	remaining, reset := r.Numbers(s, c.clock)
	if v.Retry > full || reset > full || remaining < 0 || remaining > r.Capacity() {
		c.t.Fatalf("%+v: after a clock step: verdict %+v, %d remain, reset %d: want at most %d until admission",
			c.rule, v, remaining, reset, full)
	}
	if !v.Admit {
		return
	}
	c.charge(0, c.clock, cost, v.Delay)
	c.passed = append(c.passed, event{now: c.elapsed, cost: cost})
	c.withinBound()
}

// withinBound checks the window that ends with the last admission.
func (c *stepped) withinBound() {
	from := c.elapsed - interval(c.rule)
	sum, bounds := int64(0), int64(1)
	for i := len(c.passed) - 1; i >= 0 && c.passed[i].now > from; i-- {
		sum += c.passed[i].cost
	}
	for i := len(c.steps) - 1; i >= 0 && c.steps[i] > from; i-- {
		bounds++
	}
	if most := bound(c.rule, c.rules[0]); float64(sum) > float64(most)*float64(bounds) {
		c.t.Fatalf("%+v: %d in one window with %d steps of the clock, more than %d each", c.rule, sum, bounds-1, most)
	}
}

// held returns the maximum time that a full bucket or window denies.
func held(r oracle.Rule, c algorithms.Rule) int64 {
	switch r.Algorithm {
	case "calendar":
		return r.Window + hour
	case "fixed_window", "sliding_log":
		return r.Window
	case "sliding_window":
		return part(r) * (parts(r) + 1)
	}
	// A meter detects clock steps to two microseconds, or to a refill step, and a
	// queue is longer by its maximum wait.
	return drain(r, c.Capacity()) + 2 + r.Step + patience(r)
}

// drain returns the time in which a cost leaks from a meter.
func drain(r oracle.Rule, cost int64) int64 {
	hi, lo := bits.Mul64(uint64(cost), uint64(r.Window))
	whole, rest := bits.Div64(hi, lo, uint64(r.Limit))
	if rest > 0 {
		whole++
	}
	return int64(whole)
}
