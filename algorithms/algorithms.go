// Package algorithms implements rate limiting algorithms on integers. It reads no
// clock, takes no lock and does no I/O.
//
// Each algorithm is a Caddy module in the namespace
// http.rate_limit.algorithms. It has options (the module's fields), its
// arithmetic in Go (a [Rule]) and the same arithmetic in Lua ([Algorithm.Lua]),
// which Redis runs. Both return the same verdicts and leave the same state, to
// the integer. docs/internals/arithmetic.md states the formulas and their bounds.
//
// All times and durations are integer microseconds.
package algorithms

import (
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
)

// Namespace is the Caddy module namespace of the algorithms.
const Namespace = "http.rate_limit.algorithms"

// Never is the [Verdict.Retry] of a request that is never admitted: its cost is
// above the rule's capacity.
const Never = -1

// maxExact bounds every product of the arithmetic. Lua numbers are doubles,
// exact to 2^53; half of that leaves room for one addition.
const maxExact = 1 << 52

// Algorithm is the interface of modules in http.rate_limit.algorithms. A module
// holds the algorithm's own options; the [Spec] has the limit and the window.
type Algorithm interface {
	caddy.Module

	// Compile checks the options against the limit and the window and returns
	// the rule. Its errors name the value and what would be valid.
	Compile(Spec) (Rule, error)

	// Kind returns the name of the algorithm and the options that give the state
	// its meaning, such as "sliding_window/10". A change of configuration keeps
	// the state of a rule if its kind and window stay the same. The limit, the
	// burst and the cost are therefore not part of the kind.
	Kind() string

	// Lua returns a chunk of Lua that returns the decision function, the same
	// arithmetic in Redis. scripts/README.md specifies it.
	Lua() string
}

// Spec has the parameters of a rule besides its algorithm's own options.
type Spec struct {
	// Limit is the cost that may pass in one window, at least 1.
	Limit int64

	// Window is the window's length in microseconds, at least 1; of a Period, the longest.
	Window int64

	// Period is the period of the calendar that the window is; 0: none. Only an algorithm
	// whose rules are [Dated] has windows that are.
	Period Period

	// Wall returns the time on the system's clock, which a [Dated] rule follows; nil: the
	// times of the rule are that already. A clock of this process ignores that the system's
	// was set.
	Wall func(now int64) int64

	// Cost is the cost of one request if it is fixed, else 1. A rule that could
	// never admit it is rejected.
	Cost int64

	// MaxWait is the longest a request may be made to wait, in microseconds.
	// 0: not configured.
	MaxWait int64

	// MaxWaiting is the greatest cost of the requests of a key that are made to wait at a
	// time. 0: not configured.
	MaxWaiting int64

	// MaxTurn is the longest delay of all rules that are decided together with
	// this one, in microseconds. A rule that delays is charged for the common turn,
	// so its level may exceed its own queue.
	MaxTurn int64

	// Overdraws says that the rule may be charged after the response, which may exceed
	// the capacity by up to one capacity.
	Overdraws bool

	// Lease is for how many microseconds an instance may spend what it was
	// charged in advance; 0: every request is charged. A rule reserves what that
	// delay could add to its bound. Only a [Leasable] algorithm supports it. Shares
	// reserve nothing, because they are never leased.
	Lease int64

	// ShareOf is the number of instances among which the limit is divided while
	// each enforces its share, in millionths: 3_000_000 is a third of the limit
	// each. 0 and 1_000_000 mean the whole limit.
	ShareOf int64
}

// Share returns one instance's share of v, at least the cost of one request.
func (sp Spec) Share(v int64) int64 {
	if sp.ShareOf <= 1e6 {
		return v
	}
	q, r := v/sp.ShareOf, v%sp.ShareOf
	return max(sp.Cost, q*1e6+r*1e6/sp.ShareOf)
}

func (sp Spec) check() error {
	switch {
	case sp.Limit < 1:
		return fmt.Errorf("limit %d: want at least 1", sp.Limit)
	case sp.Window < 1:
		return errors.New("window: want at least one microsecond")
	case sp.Limit > maxExact:
		return fmt.Errorf("limit %d: want at most %d", sp.Limit, int64(maxExact))
	}
	return nil
}

// State is the words that a rule keeps for one key. Their meaning is the
// algorithm's. The state of an unused key is all zeros.
type State []int64

// Verdict is the decision of one rule on one request.
type Verdict struct {
	// Admit reports whether the request is admitted.
	Admit bool

	// Retry is, for a denial, the microseconds after which the same request is
	// admitted if there is no other until then, or [Never]; else 0.
	Retry int64

	// Delay is, for an admission, how many microseconds the request waits for its
	// turn.
	Delay int64

	// Held reports that the request is denied only because of the cost that
	// unanswered requests hold. Retry is 0 then, because it is not known when they
	// will be answered.
	Held bool
}

// Extender is a [Rule] whose windows begin with a request. A key that moves between a
// counter of its own and a shared counter would meet the end of another key's window
// in addition to the end of its own. So a charge to a shared counter extends its
// window, and so does copying it to a counter of a key's own.
type Extender interface {
	Rule

	// Extend counts what the state has been charged as if its window had begun at
	// now. A window that has ended stays ended.
	Extend(s State, now int64)
}

// Rule is an algorithm with a limit and a window, which operates on the state of
// one key. A Rule has no state of its own and is safe for concurrent use. Costs are
// at least 1; times are not negative.
type Rule interface {
	// Limit is the cost that may pass in one window.
	Limit() int64

	// Window is the length of the window in microseconds.
	Window() int64

	// Capacity is the greatest cost that one request may have.
	Capacity() int64

	// Words is the length of the state; of a [Growing] rule, its minimum.
	Words() int

	// Repair corrects a state that is further ahead of now than the rule can
	// leave it, because the clock was set back. It reports whether it did. It is
	// called before every Judge.
	Repair(s State, now int64) bool

	// Judge decides whether cost is admitted at now while unanswered requests
	// hold held. It changes nothing.
	Judge(s State, now, cost, held int64) Verdict

	// Charge charges cost at now. For a request that waits for its turn, turn is
	// the longest delay of the rules that are charged together.
	Charge(s State, now, cost, turn int64)

	// Overdraw charges cost at now, whatever the verdict, and returns how much of it was
	// charged: a meter all of it, up to 2^52 or as far as it stays exact; a window is full
	// until it ends; a log takes at most twice its limit. A rule with a lease is charged so
	// that the cost may be spent until the lease ends.
	Overdraw(s State, now, cost int64) (charged int64)

	// Numbers returns the cost that is left now, and the microseconds after which
	// the state is as if unused.
	Numbers(s State, now int64) (remaining, reset int64)

	// Args returns the arguments that the decision function in Lua unpacks to decide at
	// now. Their number is always the same. They depend on now only if the rule is [Dated].
	Args(now int64) []int64
}

// Growing is a [Rule] whose state grows with use.
type Growing interface {
	Rule

	// Need returns the length that the state must have for cost to be charged at
	// now, at least the present length.
	Need(s State, now, cost int64) int

	// Move copies the state src to dst, which is longer and all zeros.
	Move(dst, src State)

	// View returns the rule on what the decision function in Lua returns of a
	// state instead of the whole (its view). Judge, Charge and Numbers of that rule
	// take the view as their State, for the instant and the cost that were decided.
	View() Rule

	// Header returns the words of the state in Redis that do not grow.
	Header() int
}

// Refilling is a [Rule] whose limit is refilled all the time, not at the end of a window.
type Refilling interface {
	Rule

	// Follow makes what was used under a lower limit drain at the limit of this rule, which is in
	// force for the key.
	Follow(s State, now int64)
}

// Follow makes what was used under a lower limit drain at the limit of a rule, if that refills. It is called between
// Repair and Judge, of a rule that is in force for the key.
func Follow(r Rule, s State, now int64) {
	if m, _ := r.(*meter); m == nil || s[2] < m.limit { // else inlined
		follow(r, s, now)
	}
}

//go:noinline
func follow(r Rule, s State, now int64) {
	if f, ok := r.(Refilling); ok {
		f.Follow(s, now)
	}
}

// cd returns a/b rounded up, for a non-negative a and a positive b.
func cd(a, b int64) int64 { return (a + b - 1) / b }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
