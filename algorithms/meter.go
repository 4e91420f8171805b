package algorithms

import (
	_ "embed"
	"fmt"
	"time"
)

// meter is the arithmetic of gcra, token_bucket and leaky_bucket: a level that
// every charge raises and that drains at a constant rate. One unit of cost is w
// units of level, and l units drain per microsecond. l/w is the limit over the
// window in lowest terms, so that every level is an integer.
//
// The state is {a, f, limit, most}: the level at t is (a-t)*l + f, so that a is the
// theoretical arrival time of GCRA and f the remainder that is less than the level
// of one microsecond. The limit is the one under which the state was written: the level
// drains at that rate until the next charge, or until a rule with a higher limit is asked.
// Such a rule keeps the cost that was used, also what is above its burst: if it were cut,
// rules that are asked in turn, as during a rollout, would free each other's keys without
// bound. So a key waits for at most what it has used at the highest rate that it was asked
// under, which is longer than after a full burst if the burst was lowered. most is the
// greatest level, in units of cost, that the state can have: the burst under which it
// was written, or more if the level is above that. Without it, a level that is valid
// under a larger burst, and what a charge after the response or a longer turn left
// above the burst, would be taken for a step of the clock.
type meter struct {
	limit, window int64
	burst         int64
	l, w          int64
	capacity      int64 // burst in units of level
	step          int64 // refill only at multiples of this; 0: continuously
	maxDelay      int64 // longest delay of a leaky_bucket, in microseconds; noDelay: it does not delay
	most          int64 // highest level in units of cost: overdrawn, or charged for the longest turn

	plain
}

const (
	meterWords = 4
	maxDrain   = 1 << 32
	noDelay    = -1
)

//go:embed meter.lua
var meterLua string

// newMeter returns the meter of a spec and a burst. If the spec is of a share, it is
// that share of both.
func newMeter(sp Spec, burst, step, maxDelay int64) (*meter, error) {
	limit := sp.Share(sp.Limit)
	if sp.ShareOf > 1e6 {
		burst = sp.Share(burst)
	}
	m := &meter{plain: meterWords, limit: limit, window: sp.Window, burst: burst, step: step, maxDelay: maxDelay}
	m.l, m.w = ratio(limit, sp.Window)
	if m.l >= maxDrain {
		return nil, fmt.Errorf("limit %d in a window of %v: the arithmetic would lose precision; want a shorter window or a limit that divides it", limit, time.Duration(sp.Window)*time.Microsecond)
	}
	turn := int64(0) // longest delay that it may be charged for, in microseconds
	if maxDelay != noDelay {
		turn = max(maxDelay, sp.MaxTurn)
	}
	if sp.Lease > 0 && sp.ShareOf == 0 && maxDelay == noDelay {
		if err := m.keepBack(sp); err != nil {
			return nil, err
		}
		burst = m.burst
	}
	room := int64(maxExact)
	for _, p := range [][2]int64{{burst, m.w}, {turn, m.l}, {step, m.l}} {
		if p[0] > 0 && p[1] > room/p[0] {
			return nil, fmt.Errorf("limit %d, burst %d: the arithmetic would leave 2^52 for this window; want smaller numbers or a window that the limit divides", limit, burst)
		}
		room -= p[0] * p[1]
	}
	m.capacity = burst * m.w
	m.most = max(2*burst, burst+cd(turn*m.l, m.w))
	return m, nil
}

// keepBack lowers the burst by what may drain during a lease: cost that was charged
// before a window began may be spent in it.
func (m *meter) keepBack(sp Spec) error {
	lease := sp.Lease
	if m.step > 0 {
		lease = cd(lease, m.step) * m.step
	}
	kept := int64(maxExact)
	if lease <= maxExact/m.l {
		kept = cd(lease*m.l, m.w)
	}
	if kept > m.burst-sp.Cost {
		return errLease(sp.Lease, "it keeps back %d of the burst %d, which leaves less than the cost %d of a request", kept, m.burst, sp.Cost)
	}
	m.burst -= kept
	return nil
}

// ratio returns the limit and the window in lowest terms.
func ratio(limit, window int64) (l, w int64) {
	g := gcd(limit, window)
	return limit / g, window / g
}

// checkBurst returns the burst, which is the limit by default.
func checkBurst(burst int64, sp Spec) (int64, error) {
	if err := sp.check(); err != nil {
		return 0, err
	}
	switch {
	case burst < 0:
		return 0, fmt.Errorf("burst %d: want at least 1", burst)
	case burst == 0:
		burst = sp.Limit
	}
	if sp.Cost > burst {
		return 0, fmt.Errorf("cost %d is above the burst %d: no request could pass; want a lower cost or a higher burst", sp.Cost, burst)
	}
	return burst, nil
}

func (m *meter) Limit() int64    { return m.limit }
func (m *meter) Window() int64   { return m.window }
func (m *meter) Capacity() int64 { return m.burst }

func (m *meter) Args(int64) []int64 {
	return []int64{m.limit, m.l, m.w, m.capacity, m.window, m.step, m.maxDelay, m.most}
}

// at returns the time at which the meter is read and written: now, or the last
// step of a bucket that is refilled in steps.
func (m *meter) at(now int64) int64 {
	if m.step > 0 {
		return now - now%m.step
	}
	return now
}

// level returns the level at t, which is a result of at.
func (m *meter) level(s State, t int64) int64 {
	if s[0] < t { // the usual state of a client below its limit
		return 0
	}
	return m.levelUpTo(s, t, m.burst)
}

// levelUpTo returns the level at t. A level that was written under another limit is
// at most that many units of cost.
func (m *meter) levelUpTo(s State, t, most int64) int64 {
	a, f := s[0], s[1]
	switch {
	case a < t || s[2] < 1:
		return 0
	case s[2] != m.limit:
		l0, w0 := ratio(s[2], m.window)
		return m.rescale(a-t, f, l0, w0, most)
	}
	return (a-t)*m.l + f
}

// rescale converts a level that was written under another limit, l0/w0 in lowest
// terms, to the same cost in units of this meter, rounded up. meter.lua has the same
// floating point operations in the same order.
func (m *meter) rescale(ahead, f, l0, w0, most int64) int64 {
	if ahead > 2*maxExact/l0 {
		return most * m.w
	}
	d := ahead*l0 + f
	used, part := d/w0, d%w0
	if used >= most {
		return most * m.w
	}
	level := used * m.w
	if part > 0 {
		level += int64(float64(part)*float64(m.w)/float64(w0)) + 1
	}
	return min(level, most*m.w)
}

func (m *meter) write(s State, t, level int64) {
	s[0], s[1], s[2], s[3] = t+level, 0, m.limit, m.burst
	if m.l > 1 { // most limits divide their window, and divisions are slow
		s[0], s[1] = t+level/m.l, level%m.l
	}
	if level > m.capacity {
		s[3] = m.most
	}
}

func (m *meter) Repair(s State, now int64) bool {
	t := m.at(now)
	if s[0] <= t || s[2] < 1 || s[0]-t <= m.ahead(s) {
		return false
	}
	m.write(s, t, m.capacity)
	return true
}

// Follow implements [Refilling]. It is called only if the state was written under a lower limit: what was used under
// a higher one goes on to drain faster.
func (m *meter) Follow(s State, now int64) {
	if s[2] >= 1 && s[0] >= m.at(now) {
		m.Overdraw(s, now, 0)
	}
}

// ahead returns how far a state can be ahead of the clock, given the limit and the
// greatest level under which it was written; 0 for a level that is not valid.
func (m *meter) ahead(s State) int64 {
	l, w := m.l, m.w
	if s[2] != m.limit {
		l, w = ratio(s[2], m.window)
	}
	if s[3] > 2*maxExact/w {
		return 0
	}
	return s[3]*w/l + 1
}

func (m *meter) Judge(s State, now, cost, held int64) Verdict {
	if cost > m.burst {
		return Verdict{Retry: Never}
	}
	t := m.at(now)
	d, most := m.level(s, t), m.capacity-cost*m.w // the highest level that admits
	if m.maxDelay != noDelay {
		most = min(most, m.maxDelay*m.l)
		if d <= most {
			return Verdict{Admit: true, Delay: cd(d, m.l)}
		}
	}
	switch {
	case d > most:
		return Verdict{Retry: m.falls(s, d, most, t) + t - now}
	case held > 0 && d+min(held, m.burst)*m.w > most:
		return Verdict{Held: true}
	}
	return Verdict{Admit: true}
}

// falls returns after how many microseconds from t on a level d, which was read at t,
// has fallen to a level to, which is lower, if there is no charge. t is a result of at.
func (m *meter) falls(s State, d, to, t int64) int64 {
	tick := max(1, m.step)
	if s[2] == m.limit {
		return cd(d-to, tick*m.l) * tick
	}
	// The level drains at the limit under which it was written, and is rounded up when
	// it is read. It is above to after lo ticks, and at most that after hi.
	l0, w0 := ratio(s[2], m.window)
	lo, hi := int64(0), (s[0]-t)/tick+1
	for hi-lo > 1 {
		half := lo + (hi-lo)/2
		if ahead := s[0] - t - half*tick; ahead >= 0 && m.rescale(ahead, s[1], l0, w0, m.burst) > to {
			lo = half
		} else {
			hi = half
		}
	}
	return hi * tick
}

func (m *meter) Charge(s State, now, cost, turn int64) {
	t := m.at(now)
	d := m.level(s, t)
	// A request that leaves later than the delay of this rule is charged as of when
	// it leaves. Otherwise more requests than the limit could leave in a window.
	if m.maxDelay != noDelay && turn > cd(d, m.l) {
		d = turn * m.l
	}
	m.write(s, t, d+cost*m.w)
}

// Overdraw implements [Rule]. All of the cost is charged, as far as the level stays exact: over any time,
// what is used drains as it refills. A level that was written under another rule is kept, and its
// greatest level beside it.
func (m *meter) Overdraw(s State, now, cost int64) (charged int64) {
	t, most := m.at(now), min(s[3], 2*maxExact/m.w)
	before, top := m.levelUpTo(s, t, max(most, m.burst)), max(2*m.burst, maxExact/m.w)
	d := max(before, min(before+min(cost, top)*m.w, top*m.w))
	m.write(s, t, d)
	if d > m.capacity {
		s[3] = max(s[3], most, cd(d, m.w))
	}
	return (d - before) / m.w
}

func (m *meter) Numbers(s State, now int64) (remaining, reset int64) {
	t := m.at(now)
	d := m.level(s, t)
	remaining = max(0, m.capacity-d) / m.w
	if m.maxDelay != noDelay {
		queue := m.maxDelay*m.l - d
		if queue < 0 {
			remaining = 0
		} else {
			remaining = min(remaining, queue/m.w+1)
		}
	}
	if d > 0 {
		// Whatever its limit, the level is 0 when a is past.
		tick := max(1, m.step)
		reset = cd(s[0]-t+min(s[1], 1), tick)*tick + t - now
	}
	return remaining, reset
}

var _ Refilling = (*meter)(nil)
