package exact_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/test/exact/oracle"
)

// TestChangedMeters changes the limit, the burst and the longest wait of a meter between
// requests, of which some are charged after the response. Every number is that of an exact
// fraction, but for the rounding of a level to the units of another limit: the same request
// passes after its retry and not a microsecond before, though the level that an earlier
// rule left drains at that rule's limit, if that is higher. No change is taken for a step of the clock.
func TestChangedMeters(t *testing.T) {
	t.Parallel()
	sent, stale := 0, 0
	for want := operations(t) / 10; sent < want; {
		rapid.Check(t, func(t *rapid.T) {
			c := newChanged(t)
			kinds, sizes := requests(t)
			for i := range kinds {
				c.next(kinds[i], sizes[i])
			}
			sent, stale = sent+len(kinds), stale+c.stale
		})
	}
	t.Logf("%d requests, %d of them denied by what an earlier rule left", sent, stale)
}

// changed is a key whose rule changes.
type changed struct {
	*key
	versions  []oracle.Rule
	compiled  []algorithms.Rule
	low, high oracle.Changed // without rounding, and with more than there can be
	tr        *trace
	charged   int // the version that was charged last
	version   int
	stale     int
}

// newChanged draws versions of a rule whose states mean the same.
func newChanged(t *rapid.T) *changed {
	base := drawRule(t, rapid.SampledFrom([]string{"gcra", "token_bucket", "leaky_bucket"}).Draw(t, "algorithm"))
	c := &changed{high: oracle.Changed{Rounding: 2}}
	turn := int64(0)
	for len(c.versions) < 4 {
		r := base
		r.Limit, r.Burst = limit(1<<20).Draw(t, "limit"), 0
		if r.Algorithm == "leaky_bucket" {
			r.NoDelay = rapid.Bool().Draw(t, "nodelay")
		}
		if r.MaxWait = 0; delays(r) {
			drawQueue(t, &r)
		} else {
			drawBurst(t, &r)
		}
		turn = max(turn, patience(r))
		c.versions = append(c.versions, r)
	}
	c.versions = slices.DeleteFunc(c.versions, func(r oracle.Rule) bool { return !countable(r, turn) })
	greatest := 0.0 // level in units of cost, in debt
	for _, r := range c.versions {
		burst, _, _ := leak(r)
		greatest = max(greatest, 2*burst)
	}
	c.versions = slices.DeleteFunc(c.versions, func(r oracle.Rule) bool { // TestHugeLevels has these
		_, _, w := leak(r)
		return greatest*w > 0.99*(1<<53)
	})
	if len(c.versions) == 0 { // the narrowest one is always countable
		narrow := base
		narrow.Limit, narrow.Burst, narrow.MaxWait, narrow.NoDelay = 1, 1, 0, base.Algorithm == "leaky_bucket"
		c.versions, turn = append(c.versions, narrow), 0
	}
	for _, r := range c.versions {
		sp := spec(r)
		sp.MaxTurn = turn
		rule, err := algorithm(r).Compile(sp)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		c.compiled = append(c.compiled, rule)
	}
	c.key = newKey(t, c.compiled[:1])
	c.follows = true
	c.tr = newTrace(beginning(t), []oracle.Rule{c.versions[0]}, c.compiled[:1])
	return c
}

// next sends a request, perhaps under another version, and sometimes charges more after
// the response.
func (c *changed) next(kind, size int64) {
	if kind == 0 {
		return
	}
	if kind>>8 < 2 {
		c.version = int(size>>4) % len(c.versions)
	}
	r, rule := c.versions[c.version], c.compiled[c.version]
	c.rules, c.tr.rules[0], c.tr.most[0] = []algorithms.Rule{rule}, r, rule.Capacity()
	e := c.tr.next(kind&255, size)
	v := c.peek(e.now, e.cost)[0]
	c.low.Follow(r, e.now)
	c.high.Follow(r, e.now)
	c.compare(e, v)
	c.tr.done(e, v.Admit, []oracle.Verdict{v})
	if !v.Admit && c.versions[c.charged] != r {
		c.stale++
	}
	c.keepsItsWord(e, v)
	switch {
	case kind>>8 == 7 && !delays(r): // as settle does
		c.owe(e.now, 1+size%(3*rule.Capacity()))
	case v.Admit && !e.peek:
		c.charge(0, e.now, e.cost, v.Delay)
		c.low.Charge(r, e.now, e.cost)
		c.high.Charge(r, e.now, e.cost)
		c.charged = c.version
	}
}

func (c *changed) owe(now, cost int64) {
	r := c.versions[c.version]
	c.rules[0].Overdraw(c.states[0], now, cost)
	c.low.Overdraw(r, now, cost)
	c.high.Overdraw(r, now, cost)
	c.charged = c.version
}

// compare fails the test if a verdict is not between those of the oracles.
func (c *changed) compare(e event, v oracle.Verdict) {
	r := c.versions[c.version]
	low, high := c.low.Peek(r, e.now, e.cost), c.high.Peek(r, e.now, e.cost)
	between := func(a, got, b int64) bool { return a <= got && got <= b }
	ok := v.Admit && low.Admit || !v.Admit && !high.Admit
	ok = ok && between(high.Remaining, v.Remaining, low.Remaining) && between(low.ResetAfter, v.ResetAfter, high.ResetAfter)
	switch {
	case v.Admit:
		ok = ok && (!high.Admit || between(low.Delay, v.Delay, high.Delay))
	case v.RetryAfter == oracle.Never || high.RetryAfter == oracle.Never:
		ok = ok && v.RetryAfter == high.RetryAfter
	default:
		ok = ok && between(low.RetryAfter, v.RetryAfter, high.RetryAfter)
	}
	if !ok {
		c.t.Fatalf("%+v\nat %d, cost %d: %+v\nexact        %+v\nrounded up   %+v%v", r, e.now, e.cost, v, low, high, c.tr)
	}
}

// keepsItsWord checks the numbers of a verdict on copies of the key.
func (c *changed) keepsItsWord(e event, v oracle.Verdict) {
	for _, broken := range []string{
		c.retry(0, e, v.RetryAfter),
		c.remaining(0, e.now, v.Remaining),
		c.reset(0, e.now, v.ResetAfter),
	} {
		if broken != "" {
			c.t.Fatalf("%s, state %v%v", fmt.Sprintf("%+v at %d, cost %d: %s", c.versions[c.version], e.now, e.cost, broken), c.states[0], c.tr)
		}
	}
}

// TestHugeLevels fills and overdraws the greatest bursts that are accepted, and changes the
// rule: no product overflows, and no debt is taken for a step of the clock.
func TestHugeLevels(t *testing.T) {
	const window, now = hour, 5 * hour
	gcra := func(limit, burst int64) algorithms.Rule {
		return compiled(t, &algorithms.GCRA{Burst: burst}, algorithms.Spec{Limit: limit, Window: window, Cost: 1})
	}
	// At the rate of one per microsecond the level is a time, and a cost.
	k := newKey(t, []algorithms.Rule{gcra(window, 1<<52)})
	if ok, _ := k.decide(now, 1<<52); !ok {
		t.Fatal("a whole burst is denied")
	}
	k.rules[0] = gcra(1, 5)
	if v := k.peek(now, 2)[0]; v.Admit || v.Remaining != 0 || v.RetryAfter != 1<<52-3 || v.ResetAfter != 1<<52 {
		t.Errorf("after 2^52: %+v", v)
	}
	k.rules[0] = gcra(window, 1<<52)
	k.rules[0].Overdraw(k.states[0], now, 1<<60)
	k.rules[0] = gcra(window, 1<<40)
	if v := k.peek(now, 1)[0]; v.Admit || v.RetryAfter != 1<<53-1<<40+1 || v.ResetAfter != 1<<53 {
		t.Errorf("in debt of 2^53: %+v", v)
	}
	// What a rule with a long window is charged keeps what was used under another, to 2^53.
	const month = 30 * 24 * hour
	for used, kept := range map[int64]int64{3000: 3000, 4000: (1 << 53) / month} {
		monthly := func(limit int64) algorithms.Rule {
			return compiled(t, new(algorithms.GCRA), algorithms.Spec{Limit: limit, Window: month, Cost: 1})
		}
		k := newKey(t, []algorithms.Rule{monthly(6000)})
		if ok, _ := k.decide(now, used); !ok {
			t.Fatalf("%d of 6,000 are denied", used)
		}
		k.rules[0] = monthly(1)
		k.rules[0].Overdraw(k.states[0], now, 1)
		k.rules[0], k.follows = monthly(6000), true
		if v := k.peek(now, 1)[0]; !v.Admit || v.Remaining != 6000-kept || v.ResetAfter != kept*month/6000 {
			t.Errorf("%d used: %+v, want %d remaining", used, v, 6000-kept)
		}
	}
}
