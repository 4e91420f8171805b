// Package oracle decides rate limits in the slow and obvious way, as a reference for
// the arithmetic, with which it shares no code and no formula.
//
// Each algorithm is defined by one predicate: would this request pass at this instant,
// given the requests admitted before? Everything else (what remains, how long to wait,
// when nothing counts any more) is found by searching for other costs and instants
// that satisfy the predicate, because without further requests a verdict only changes
// from false to true.
//
// All times and durations are integer microseconds.
package oracle

import "fmt"

// Never is the RetryAfter of a request that would never be admitted.
const Never = -1

// The defaults of the zero fields of a [Rule].
const (
	defaultBuckets = 10
	defaultMaxWait = 1_000_000
)

// Rule is one limit under one algorithm.
type Rule struct {
	// Algorithm is gcra, token_bucket, leaky_bucket, fixed_window,
	// sliding_window, sliding_log or calendar.
	Algorithm string

	// Limit is the cost that passes per Window.
	Limit, Window int64

	// Burst is the cost that passes at once, for gcra, token_bucket and
	// leaky_bucket. 0: the limit or, for a leaky bucket that delays, what
	// drains in MaxWait plus one request that leaves immediately.
	Burst int64

	// Buckets is the number of parts of a sliding window. 0: 10.
	Buckets int64

	// Step makes a token bucket refill only at its multiples. 0: continuously.
	Step int64

	// Align makes fixed windows start at multiples of their length.
	Align bool

	// NoDelay makes a leaky bucket not delay what it admits.
	NoDelay bool

	// From is the day on which a week or month of a calendar begins; empty: Monday, or the first.
	From string

	// Period is the day, week, month or year of a calendar in the time zone Zone. Window is
	// not used then.
	Period, Zone string

	// MaxWait is the maximum delay of a leaky bucket. 0: the time that its burst
	// takes, or a second without a burst.
	MaxWait int64
}

// Verdict is the result of one rule for one request.
type Verdict struct {
	// Admit reports whether the rule admits the request.
	Admit bool

	// Remaining is the number of requests of cost 1 that would still pass now.
	Remaining int64

	// RetryAfter is, for a denial, the time after which the same request would
	// pass without further requests, or [Never]. 0 for an admission.
	RetryAfter int64

	// ResetAfter is the time after which the rule is as if unused.
	ResetAfter int64

	// Delay is, for an admission, how long the request is delayed.
	Delay int64
}

// memory is the state of a rule: the requests it admitted.
type memory interface {
	// capacity is the maximum cost that an unused rule admits.
	capacity() int64

	// admits reports whether cost would pass at t after a total cost of before had
	// been admitted at the same instant.
	admits(t, before, cost int64) bool

	// wait is the delay of a request admitted at t.
	wait(t int64) int64

	// remember records a request admitted at t. turn is its final delay, which is
	// longer than wait(t) if a slower rule delays the request.
	remember(t, cost, turn int64)
}

// Limiter decides requests of one key by all of its rules together. Time must not
// decrease between calls.
type Limiter struct {
	rules []memory
}

// New returns an unused limiter. It panics on an unknown algorithm.
func New(rules ...Rule) *Limiter {
	l := new(Limiter)
	for _, r := range rules {
		l.rules = append(l.rules, newMemory(r))
	}
	return l
}

func newMemory(r Rule) memory {
	switch r.Algorithm {
	case "gcra":
		return newBucket(r, 0)
	case "token_bucket":
		return newBucket(r, r.Step)
	case "leaky_bucket":
		if r.NoDelay {
			return newBucket(r, 0)
		}
		return newQueue(r)
	case "fixed_window":
		return &fixedWindow{limit: r.Limit, window: r.Window, align: r.Align}
	case "sliding_window":
		return newSlidingWindow(r)
	case "sliding_log":
		return newSlidingLog(r)
	case "calendar":
		return newCalendar(r)
	}
	panic(fmt.Sprintf("algorithm %q does not exist", r.Algorithm))
}

// Decide judges a request by every rule and charges all of them if all admit it.
// Remaining and ResetAfter are the values after the decision.
func (l *Limiter) Decide(now, cost int64) (bool, []Verdict) {
	verdicts := l.Peek(now, cost)
	turn := int64(0)
	for _, v := range verdicts {
		if !v.Admit {
			return false, verdicts
		}
		turn = max(turn, v.Delay)
	}
	for i, m := range l.rules {
		m.remember(now, cost, turn)
		verdicts[i].Remaining, verdicts[i].ResetAfter = remaining(m, now), resetAfter(m, now)
	}
	return true, verdicts
}

// Peek returns the verdicts of a request that is not charged.
func (l *Limiter) Peek(now, cost int64) []Verdict {
	verdicts := make([]Verdict, len(l.rules))
	for i, m := range l.rules {
		v := Verdict{Admit: m.admits(now, 0, cost), Remaining: remaining(m, now), ResetAfter: resetAfter(m, now)}
		if v.Admit {
			v.Delay = m.wait(now)
		} else {
			v.RetryAfter = retryAfter(m, now, cost)
		}
		verdicts[i] = v
	}
	return verdicts
}

// remaining counts the requests of cost 1 that pass now.
func remaining(m memory, now int64) int64 {
	return first(m.capacity(), func(passed int64) bool { return !m.admits(now, passed, 1) })
}

// retryAfter returns the time until the same request passes.
func retryAfter(m memory, now, cost int64) int64 {
	if cost > m.capacity() {
		return Never
	}
	return after(func(d int64) bool { return m.admits(now+d, 0, cost) })
}

// resetAfter returns the time until the whole capacity would pass at once.
func resetAfter(m memory, now int64) int64 {
	return after(func(d int64) bool { return m.admits(now+d, 0, m.capacity()) })
}

// SetLimit changes the limit of every rule that counts in windows. What was admitted stays
// admitted.
func (l *Limiter) SetLimit(limit int64) {
	for _, m := range l.rules {
		switch m := m.(type) {
		case *fixedWindow:
			m.limit = limit
		case *lookback:
			m.limit = limit
		default:
			panic("a rule that does not count in windows: see Changed")
		}
	}
}
