// Package oracle decides rate limits the slow and obvious way. It exists to be
// compared with: it shares no code and no formula with the arithmetic it
// checks.
//
// Each algorithm is written down as what it means, as one question: would this
// request pass at this instant, given the requests that were admitted before?
// Everything else (how much is left, how long to wait, when all is forgotten)
// is found by asking that question again of other costs and other instants,
// because a verdict only ever turns from no to yes while nobody comes.
//
// All times and durations are integer microseconds.
package oracle

import "fmt"

// Never is the RetryAfter of a request that no waiting would admit.
const Never = -1

// The defaults of what a [Rule] leaves at zero.
const (
	defaultBuckets = 10
	defaultMaxWait = 1_000_000
)

// Rule is one limit under one algorithm.
type Rule struct {
	// Algorithm is gcra, token_bucket, leaky_bucket, fixed_window,
	// sliding_window or sliding_log.
	Algorithm string

	// Limit is the cost that passes per Window.
	Limit, Window int64

	// Burst is how much passes back to back, for gcra, token_bucket and
	// leaky_bucket. 0: the limit or, for a leaky bucket that delays, what
	// drains in MaxWait and the one that leaves at once.
	Burst int64

	// Buckets is the number of parts of a sliding window. 0: 10.
	Buckets int64

	// Step makes a token bucket refill only at its multiples. 0: continuously.
	Step int64

	// Align makes fixed windows start at multiples of their length.
	Align bool

	// NoDelay lets what a leaky bucket admits pass at once.
	NoDelay bool

	// MaxWait is the longest that a leaky bucket may delay a request. 0: as
	// long as its burst takes, or a second without a burst.
	MaxWait int64
}

// Verdict is what one rule says of one request.
type Verdict struct {
	// Admit says whether the rule lets the request pass.
	Admit bool

	// Remaining is how many requests of cost 1 could still pass now.
	Remaining int64

	// RetryAfter is, for a denial, after how long the same request would pass
	// if nobody else came, or [Never]. 0 for an admission.
	RetryAfter int64

	// ResetAfter is after how long the rule is as if unused.
	ResetAfter int64

	// Delay is, for an admission, how long the request waits for its turn.
	Delay int64
}

// memory is what a rule remembers of the requests it admitted.
type memory interface {
	// capacity is the most that an unused rule would admit.
	capacity() int64

	// admits says whether cost would pass at t, if before had been admitted at
	// the same instant just ahead of it, in requests of any size.
	admits(t, before, cost int64) bool

	// wait is how long a request admitted at t waits for its turn.
	wait(t int64) int64

	// remember takes note of a request admitted at t. turn is how long it
	// waits in the end, which is longer than wait(t) where it has to leave
	// together with the verdict of a slower rule.
	remember(t, cost, turn int64)
}

// Limiter decides requests of one key by all of its rules together. Time must
// not run backwards between its calls.
type Limiter struct {
	rules []memory
}

// New returns a limiter that has seen no requests. It panics on a rule whose
// algorithm does not exist.
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
	}
	panic(fmt.Sprintf("algorithm %q does not exist", r.Algorithm))
}

// Ask judges a request by every rule at one instant. Only if all admit it, all
// are charged. Remaining and ResetAfter are those after the decision.
func (l *Limiter) Ask(now, cost int64) (bool, []Verdict) {
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

// remaining lets requests of cost 1 come one after the other, all now, until
// one of them does not pass.
func remaining(m memory, now int64) int64 {
	return first(m.capacity(), func(passed int64) bool { return !m.admits(now, passed, 1) })
}

// retryAfter waits until the same request passes.
func retryAfter(m memory, now, cost int64) int64 {
	if cost > m.capacity() {
		return Never
	}
	return after(func(d int64) bool { return m.admits(now+d, 0, cost) })
}

// resetAfter waits until all that an unused rule admits would pass at once.
func resetAfter(m memory, now int64) int64 {
	return after(func(d int64) bool { return m.admits(now+d, 0, m.capacity()) })
}
