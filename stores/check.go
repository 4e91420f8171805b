package stores

import (
	"time"

	"github.com/dianalimiter/diana/algorithms"
)

// Check is the check of one request: it is charged under every zone, or under
// none.
type Check struct {
	// Zones are the zones that apply, in the order of the configuration: first those that enforce
	// their rules, and behind them those in shadow.
	Zones []ZoneCheck

	// Shadows is how many of Zones, the last ones, are in shadow. Each zone of them is decided and
	// charged on its own, after the others and only if they admit, and denies nothing.
	Shadows int

	// Peek decides and charges nothing.
	Peek bool

	// Now is set to the instant of the decision, in microseconds on the store's
	// clock.
	Now int64

	// Admitted is set to whether every zone that enforces its rules admits.
	Admitted bool

	// Turn is set to how many microseconds an admitted request has to wait.
	Turn int64

	// Mode is set to who decided.
	Mode Mode

	// Waited is set, if this process decided in place of a shared store, to how many microseconds
	// it had waited for that store before; 0: it did not ask.
	Waited int64
}

// ZoneCheck is one zone of a check: what is asked, what the store answers, and what it keeps for
// itself.
type ZoneCheck struct {
	// What is asked.

	Counter *Counter // the rules
	Subject          // who is counted

	// Cost is charged to every rule. At least 1.
	Cost int64

	Holding // what is held until the request ends

	// WantsMore asks for More of the results.
	WantsMore bool

	// IgnoreBlock decides by the states alone, whether the key is blocked or not.
	IgnoreBlock bool

	// What the store answers.

	Decider  // who decided
	Enforced // by which limits
	InUse    // what other requests hold

	// Results are the results of Rules, one each.
	Results []Result

	// Admits says whether the zone's rules and permits admit the request.
	Admits bool

	// Charged says that the zone was charged, or holds a permit.
	Charged bool

	NoRoom // what a full table could not keep

	// Block is the block of the key, if it is blocked, or is from now on.
	Block Block

	StoreOnly
}

// Subject is who a zone counts.
type Subject struct {
	// Key is what the rules are counted under.
	Key Key

	// Tag selects the slot in a Redis Cluster. It is Key, except for what is
	// counted in addition to a zone's key, such as fingerprints of duplicates.
	Tag Key

	// Group identifies the keys of one network.
	Group uint32
}

// Holding asks for a hold in addition to what the counter asks for.
type Holding struct {
	// Reserve holds the cost, as Counter.HoldCost does, though the counter does
	// not ask for it.
	Reserve bool

	// SeesHeld says that requests of other handlers may hold cost of the key, which then counts
	// for this check, too, though it holds nothing.
	SeesHeld bool

	// KeepsPermit says that [Store.Finish] is called once more: it ends the hold of the cost, and charges the
	// request, which keeps its permit.
	KeepsPermit bool
}

// Enforced are the limits that a zone was decided by: the counter's, or this instance's share of
// them.
type Enforced struct {
	// Rules are the rules.
	Rules []algorithms.Rule

	// InFlight is how many requests of the key may hold a permit. 0: any number.
	InFlight int64
}

// InUse is what other requests of the key hold.
type InUse struct {
	// Full says that InFlight permits are in use.
	Full bool

	// Held is the cost that they hold.
	Held int64
}

// NoRoom is what a store could not keep because its table is full.
type NoRoom struct {
	// Overflowed says that the zone was charged to a counter that several keys share, or
	// nowhere if its keys have OwnSlots.
	Overflowed bool

	// Unblocked says that the zone's verdicts start no block.
	Unblocked bool
}

// Decider is who decided a zone. It is set by [Across].
type Decider struct {
	Mode Mode          // who decided
	Took time.Duration // how long it took, on one zone of each store
}

// StoreOnly is what the store of a zone keeps for itself from Decide to Finish. Nobody else reads it.
type StoreOnly struct {
	// StartsBlock says whether a denial may start a block.
	StartsBlock bool

	// Known says that this instance has a snapshot of the key that still
	// counts, so that the shared store charges nothing if the key is missing there.
	Known bool

	// Due says that this instance has something to tell the shared store of the key.
	Due bool

	// Permit is what the request holds.
	Permit Permit

	// Lease is a request for cost in advance.
	Lease LeaseRequest

	estimate int64 // the Cost that CutCost was first called with; 0: it was not
}

// Permit is what a request holds until [Store.Finish].
type Permit struct {
	Mode  Mode  // who admitted the request
	Taken bool  // until it is given back
	Lease int64 // the end of the lease that the cost was drawn from; 0: none
}

// LeaseRequest requests cost from a shared store in advance.
type LeaseRequest struct {
	Want    int64 // in addition to the zone's own cost, to be spent later
	Granted int64 // of that; -1: the store did not say
}

// Result is the result of one rule.
type Result struct {
	algorithms.Verdict

	// Remaining is the cost that could still be admitted after this decision.
	Remaining int64

	// Reset is after how many microseconds the rule is in its initial state.
	Reset int64

	// More is after how many microseconds more than Remaining could be admitted, if no other
	// request arrived; 0: nothing is used. A local store sets it if the zone's WantsMore is set.
	More int64

	// Used is what was used of the capacity before and after the decision, or after it the
	// charge of [Store.Finish], if the counter Notifies.
	Used [2]int64

	// State and Rule are set by a store in Redis: the state that Redis reported,
	// and the rule that reads it.
	State algorithms.State
	Rule  algorithms.Rule // that reads State
}

// Holds says whether the zone takes a permit until [Store.Finish], and whether
// that permit holds the cost.
func (z *ZoneCheck) Holds() (permit, cost bool) {
	cost = z.Counter.HoldCost || z.Reserve
	return cost || z.Counter.InFlight > 0, cost
}

// HasPermit reports whether the request holds a permit of the zone, or has its cost held, until
// [Store.Finish].
func (z *ZoneCheck) HasPermit() bool { return z.Permit.Taken }

// HeldCost returns the cost that a permit of the zone holds.
func (z *ZoneCheck) HeldCost() int64 {
	if _, cost := z.Holds(); cost {
		return z.Cost
	}
	return 0
}

// CutCost lowers the cost to what rules can admit, if it is estimated. It may be called again with
// others: a check that was denied may be decided once more, by another share of the limits.
func (z *ZoneCheck) CutCost(rules []algorithms.Rule) {
	if !z.Counter.Estimated {
		return
	}
	z.estimate = max(z.estimate, z.Cost)
	z.Cost = z.estimate
	for _, r := range rules {
		z.Cost = min(z.Cost, r.Capacity())
	}
}

// EndedPermits returns how many permits [Store.Finish] ends. What holds only the cost ends with that.
func (z *ZoneCheck) EndedPermits() int64 {
	if z.Counter.InFlight > 0 && z.KeepsPermit {
		return 0
	}
	return 1
}

// ResetResults clears what a previous decision set and makes room for a result
// of each of the zones' Rules.
func (check *Check) ResetResults() {
	for i := range check.Zones {
		check.Zones[i].ResetResults()
	}
}

// ResetResults is [Check.ResetResults] for one zone.
func (z *ZoneCheck) ResetResults() {
	z.Admits, z.Charged, z.Full = true, false, false
	z.Permit, z.Block, z.NoRoom = Permit{}, Block{}, NoRoom{}
	n := len(z.Rules)
	if cap(z.Results) < n {
		z.Results = make([]Result, n)
		return
	}
	z.Results = z.Results[:n]
	for r := range z.Results {
		res := &z.Results[r]
		*res = Result{}
	}
}

// Skip answers a check that nobody decides: with [ModeAllow] it is admitted, with [ModeDeny] denied.
// It charges nothing, and there are no results.
func (check *Check) Skip(m Mode, now int64) {
	admit := m == ModeAllow
	check.Mode, check.Admitted, check.Turn, check.Now = m, true, 0, now
	for i := range check.Zones {
		z := &check.Zones[i]
		z.Rules, z.Results = nil, z.Results[:0]
		z.Admits, z.Charged, z.Full, z.Permit = admit, false, false, Permit{}
		check.Admitted = check.Admitted && (admit || check.IsShadow(i))
	}
}

// DenyFull denies a check on which a store was only peeked at, as if the permits of the zone were all in use: older
// requests of its key wait for one.
func (check *Check) DenyFull(z *ZoneCheck) { check.Admitted, z.Admits, z.Full = false, false, true }

// DenyDelays denies a check on which a store was only peeked at, because too many requests wait by the rules of the
// zone that delay. It may be repeated after what they would delay it, and after at least so many microseconds.
func (check *Check) DenyDelays(z *ZoneCheck, delays []bool, least int64) {
	check.Admitted, check.Turn, z.Admits = false, 0, false
	for r := range z.Results {
		if res := &z.Results[r]; delays[r] {
			res.Verdict = algorithms.Verdict{Retry: max(res.Delay, least)}
		}
	}
}

// IsShadow reports whether the i-th of Zones is in shadow.
func (check *Check) IsShadow(i int) bool { return i >= len(check.Zones)-check.Shadows }

// Conclude sets Admitted and Turn from the results of the zones.
func (check *Check) Conclude() {
	admitted, turn := true, int64(0)
	for i := range check.Zones[:len(check.Zones)-check.Shadows] {
		z := &check.Zones[i]
		admitted, turn = admitted && z.Admits, max(turn, z.Delay())
	}
	check.Admitted, check.Turn = admitted, turn
}

// Charges reports whether the i-th of Zones is to be charged, after Conclude.
func (check *Check) Charges(i int) bool {
	return check.Admitted && !check.Peek && check.Zones[i].Admits && (check.Shadows == 0 || !check.withheld(i))
}

// withheld reports whether the one of Zones that the i-th is joined with denies.
func (check *Check) withheld(i int) bool {
	return check.Joined(i) && !check.Zones[i-1].Admits || check.Joined(i+1) && !check.Zones[i+1].Admits
}

// Joined reports whether there is an i-th of Zones that, in shadow, is joined with the one before: they are of one
// zone and key, and both are charged, or neither. No three are.
func (check *Check) Joined(i int) bool {
	if i == 0 || i == len(check.Zones) || !check.IsShadow(i-1) {
		return false
	}
	before, z := &check.Zones[i-1], &check.Zones[i]
	return before.Tag == z.Tag && before.Counter.Zone == z.Counter.Zone
}

// TurnOf returns how many microseconds the request waits before the i-th of Zones is charged. A
// shadow has its own queues.
func (check *Check) TurnOf(i int) int64 {
	if check.IsShadow(i) {
		return check.Zones[i].Delay()
	}
	return check.Turn
}

// Delay returns how many microseconds the rules of the zone delay the request.
func (z *ZoneCheck) Delay() (longest int64) {
	for r := range z.Results {
		longest = max(longest, z.Results[r].Delay)
	}
	return longest
}
