// Package algorithms holds the arithmetic of rate limiting: integers in,
// integers out. Nothing in it reads a clock, takes a lock or does I/O.
//
// Each algorithm is a Caddy module in the namespace
// http.rate_limit.algorithms. It brings its options (the module's fields), its
// arithmetic in Go (a [Rule]) and the same arithmetic in Lua ([Algorithm.Lua]),
// which Redis runs. Both give the same verdicts and leave the same state, to
// the integer. docs/algorithms.md states the formulas and their bounds.
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

// Never is the RetryAfter of a request that no waiting would admit: its cost
// is above what the rule can ever hold.
const Never = -1

// maxExact bounds every product of the arithmetic. Lua numbers are doubles,
// exact to 2^53; half of that leaves room for one addition.
const maxExact = 1 << 52

// Algorithm is what a module in http.rate_limit.algorithms implements. It
// holds the algorithm's own options; limit and window come with the [Spec].
type Algorithm interface {
	caddy.Module

	// Compile checks the options against the limit and the window and returns
	// the rule they make. Its errors name the value and say what would be right.
	Compile(Spec) (Rule, error)

	// Kind names everything of the options that gives the state its meaning,
	// such as "sliding_window/10". Counts are kept over a change of
	// configuration only while the kind and the window stay the same, so the
	// limit, the burst and the cost are never part of it.
	Kind() string

	// Lua returns the chunk that does the same arithmetic in Redis. The chunk
	// returns a function judge; scripts/README.md has its contract.
	Lua() string
}

// Spec is what a rule is compiled from besides its algorithm's own options.
type Spec struct {
	// Limit is the cost that may pass in one window, at least 1.
	Limit int64

	// Window is the window's length in microseconds, at least 1.
	Window int64

	// Cost is what one request takes if that is fixed, else 1. A rule that
	// could never admit it is refused.
	Cost int64

	// MaxWait is the longest a request may be made to wait, in microseconds.
	// Zero: nothing was said.
	MaxWait int64

	// MaxTurn is the longest delay that any rule decided together with this
	// one can give, in microseconds. A delaying rule is charged at the common
	// turn and so may be filled past its own queue.
	MaxTurn int64

	// Debt says that a rule may be charged after the fact, and so may owe up
	// to one further capacity.
	Debt bool

	// Lease is for how many microseconds an instance may spend what it was
	// charged in advance; 0: it is charged for each request. A rule keeps back
	// what such a delay could add to its bound. Only a [Leasable] algorithm takes
	// it. Shares keep nothing back, because they are never leased.
	Lease int64

	// ShareOf is the number of instances that the limit is divided among when
	// each enforces it alone, in millionths: 3_000_000 is a third of the limit
	// each. Zero and 1_000_000 mean the whole limit.
	ShareOf int64
}

// Share returns this instance's part of a quantity, at least as much as one
// request needs.
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

// State is the words that a rule keeps for one key. Their meaning belongs to
// the algorithm. A state of zeros is that of a key never seen.
type State []int64

// Verdict is what one rule says of one request.
type Verdict struct {
	// Admit says whether the request may pass.
	Admit bool

	// Retry is, for a denial, the microseconds after which the same request
	// would pass if nobody else came, or [Never]; 0 for an admission.
	Retry int64

	// Delay is, for an admission, how many microseconds the request has to
	// wait for its turn.
	Delay int64

	// Held says that the rule itself would admit the request, and that only
	// places held by unanswered requests stand in its way. Retry is 0 then,
	// because nobody knows when they will be answered.
	Held bool
}

// Rule is an algorithm with its limit and window: what one rule of a zone
// does to one key's state. A Rule has no state of its own and may be used by
// any number of goroutines. Costs are at least 1, times never negative.
type Rule interface {
	// Limit is the cost that may pass in one window.
	Limit() int64

	// Window is the length of the window in microseconds.
	Window() int64

	// Capacity is the greatest cost that one request may have.
	Capacity() int64

	// Words is the length of the state. A [Growing] rule says here how many
	// words its state has at the least.
	Words() int

	// Repair mends a state that was written by a clock ahead of now by more
	// than the rule can explain, and reports whether it did. It comes before
	// every Judge.
	Repair(s State, now int64) bool

	// Judge says whether cost may pass at now beside what unanswered requests
	// hold. It changes nothing.
	Judge(s State, now, cost, held int64) Verdict

	// Charge takes cost at now. For a request that waits for its turn, turn is
	// how long, the greatest delay of the rules that are charged together.
	Charge(s State, now, cost, turn int64)

	// Owe takes cost at now, whatever a verdict would be. It leaves at most
	// one capacity of debt. A rule with a lease takes it so that it may be spent
	// until the lease ends.
	Owe(s State, now, cost int64)

	// Numbers returns what could still pass now, and after how many
	// microseconds the rule is as if unused.
	Numbers(s State, now int64) (remaining, reset int64)

	// Args are the numbers that the Lua judge unpacks, in its order.
	Args() []int64
}

// Growing is a [Rule] whose state grows with use.
type Growing interface {
	Rule

	// Need is the length that the state must have for cost to be charged at
	// now. It is never less than the present length.
	Need(s State, now, cost int64) int

	// Move writes the state src into dst, which is longer and all zeros.
	Move(dst, src State)

	// View is the rule as seen through what its Lua judge reports of a key
	// instead of the whole state: its Judge, Charge and Numbers take that
	// report as their State, for the instant and the cost that were judged.
	// Its Words are the length of the report and of the state's header in
	// Redis.
	View() Rule
}

// Paired is a [Rule] whose state is four words, of which the second is at least 0
// and below 2^32 and the last two are the same for all keys that were last
// charged under the same limit and burst. So a store that holds many keys need
// not keep those two for each.
type Paired interface {
	Rule

	// Pair is what the states end in that this rule has written.
	Pair() [2]int64
}

// cd is ceiling division of a non-negative by a positive number.
func cd(a, b int64) int64 { return (a + b - 1) / b }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
