package oracle

import "math/big"

// Changed is a meter (gcra, token_bucket or leaky_bucket) whose limit and burst change
// between requests. Its level leaks at the highest limit that it was asked under since it was last
// charged, and the rule that looks at it says how much fits.
//
// The level is an exact fraction of a cost. The arithmetic rounds it up when it charges
// under another limit, or compares it with a wait, so a test has two oracles, without and
// with rounding, between which the numbers of each verdict lie.
type Changed struct {
	// Rounding is added to a level from another limit, in the units of the new one: the
	// greatest common divisor of limit and window, over the window.
	Rounding int64

	level big.Rat // at the time at
	rate  big.Rat // cost that leaks per microsecond
	at    int64
}

// meterOf returns what fits into the meter of a rule, the longest wait in it, and whether
// that is bounded.
func meterOf(r Rule) (burst, patience int64, delays bool) {
	if r.Algorithm == "leaky_bucket" && !r.NoDelay {
		q := newQueue(r)
		return q.burst, q.patience, true
	}
	return newBucket(r, r.Step).burst, 0, false
}

// now returns the level at t. A bucket with a step leaks at its multiples.
func (c *Changed) now(r Rule, t int64) *big.Rat {
	leaked := t - c.at
	if r.Step > 0 {
		leaked = (t/r.Step - c.at/r.Step) * r.Step
	}
	return c.after(&c.level, &c.rate, leaked)
}

// after returns a level after a time, at least 0.
func (c *Changed) after(level, rate *big.Rat, time int64) *big.Rat {
	d := new(big.Rat).SetInt64(time)
	if d.Sub(level, d.Mul(d, rate)); d.Sign() < 0 {
		d.SetInt64(0)
	}
	return d
}

func (c *Changed) admits(r Rule, t, before, cost int64) bool {
	burst, patience, delays := meterOf(r)
	if delays && patience > 0 {
		d := c.rounded(r, t)
		d.Add(d, new(big.Rat).SetInt64(before))
		if c.after(d, big.NewRat(r.Limit, r.Window), patience).Sign() > 0 {
			return false
		}
	}
	d := c.now(r, t)
	return d.Add(d, new(big.Rat).SetInt64(before+cost-burst)).Sign() <= 0
}

// Peek returns the verdict on a request under a rule.
func (c *Changed) Peek(r Rule, now, cost int64) Verdict {
	burst, _, delays := meterOf(r)
	v := Verdict{
		Admit:      c.admits(r, now, 0, cost),
		Remaining:  first(burst, func(n int64) bool { return !c.admits(r, now, n, 1) }),
		ResetAfter: after(func(d int64) bool { return c.now(r, now+d).Sign() == 0 }),
	}
	switch {
	case v.Admit && delays:
		level, rate := c.rounded(r, now), big.NewRat(r.Limit, r.Window)
		v.Delay = after(func(d int64) bool { return c.after(level, rate, d).Sign() == 0 })
	case v.Admit:
	case cost > burst:
		v.RetryAfter = Never
	default:
		v.RetryAfter = after(func(d int64) bool { return c.admits(r, now+d, 0, cost) })
	}
	return v
}

// Follow asks under a rule. Where it leaks faster, all that is used leaks so from now on.
func (c *Changed) Follow(r Rule, now int64) {
	if faster := big.NewRat(r.Limit, r.Window).Cmp(&c.rate) > 0; faster && c.now(r, now).Sign() > 0 {
		c.set(r, now, c.rounded(r, now))
	}
}

// Charge charges an admitted request.
func (c *Changed) Charge(r Rule, now, cost int64) {
	c.set(r, now, new(big.Rat).Add(c.rounded(r, now), new(big.Rat).SetInt64(cost)))
}

// exact is the level up to which a meter owes, in parts of a unit as small as its rate has them.
const exact = 1 << 52

// Overdraw charges a cost after the response: up to twice the burst, or more as far as it is exact, and
// never so that the level falls.
func (c *Changed) Overdraw(r Rule, now, cost int64) {
	burst, _, _ := meterOf(r)
	most, before := new(big.Rat).SetInt64(2*burst), c.rounded(r, now)
	if whole := new(big.Int).Div(big.NewInt(exact), big.NewRat(r.Limit, r.Window).Denom()).Int64(); whole > 2*burst {
		most.SetInt64(whole)
	}
	d := new(big.Rat).Add(before, new(big.Rat).SetInt64(cost))
	if d.Cmp(most) > 0 {
		d = most
	}
	if d.Cmp(before) < 0 {
		d = before
	}
	c.set(r, now, d)
}

// rounded returns the level in the units of a rule.
func (c *Changed) rounded(r Rule, now int64) *big.Rat {
	d, rate := c.now(r, now), big.NewRat(r.Limit, r.Window)
	if d.Sign() > 0 && rate.Cmp(&c.rate) != 0 {
		d.Add(d, new(big.Rat).SetFrac(big.NewInt(c.Rounding), rate.Denom()))
	}
	return d
}

func (c *Changed) set(r Rule, now int64, level *big.Rat) {
	c.level.Set(level)
	c.rate.SetFrac64(r.Limit, r.Window)
	c.at = now
}
