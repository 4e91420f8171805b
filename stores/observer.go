package stores

import "errors"

// Failure is a class of failures of a shared store.
type Failure string

// The classes of failures, which are label values of a metric.
const (
	FailTimeout  Failure = "timeout"  // no reply in time
	FailAway     Failure = "away"     // unreachable, or not ready
	FailRejected Failure = "rejected" // reachable, and rejects calls: rights, memory, disk
	FailWrong    Failure = "wrong"    // an unexpected reply: another tenant's key, or a bug
)

// Failures are all classes.
var Failures = []Failure{FailTimeout, FailAway, FailRejected, FailWrong}

// Uncharged is why cost that was to be charged in a shared store is not, or perhaps not.
type Uncharged string

// The reasons, which are label values of a metric.
const (
	UnchargedUnknown     Uncharged = "unknown"     // the call had no reply: it may have charged it
	UnchargedFull        Uncharged = "full"        // the zone has no room for a further key
	UnchargedUnsupported Uncharged = "unsupported" // an algorithm cannot hand over what it counted, or put back what the store has lost
	UnchargedReset       Uncharged = "reset"       // the key was reset after it began to owe
	UnchargedReplaced    Uncharged = "replaced"    // no zone counts by these rules any more: they were changed, or removed
	UnchargedClosed      Uncharged = "closed"      // the store is not configured any more
)

// UnchargedReasons are all reasons.
var UnchargedReasons = []Uncharged{UnchargedUnknown, UnchargedFull, UnchargedUnsupported, UnchargedReset, UnchargedReplaced, UnchargedClosed}

// Advice returns what an operator can do about an error that a shared store has returned or
// reported; empty: the store does not say.
func Advice(err error) string {
	var a interface{ Advice() string }
	if errors.As(err, &a) {
		return a.Advice()
	}
	return ""
}

// Observer is notified of the events of a store. Its methods must not block.
type Observer interface {
	// StoreUp is called when a node is used again, or when others have replaced it.
	// node is its address in a Cluster, and empty otherwise. It and StoreDown are called
	// in the order of the changes, with the locks of the nodes held, so they must take no
	// lock that is held while a store is called, and call none of its methods but
	// [Observed.Instances].
	StoreUp(name, node string)

	// StoreDown is called when a node is no longer used. node is as for StoreUp.
	StoreDown(name, node string, f Failure, cause error)

	// StoreError is called for each failed call.
	StoreError(name string, f Failure, err error)

	// ClockSteps is called for each state that was repaired after a step of
	// the store's clock.
	ClockSteps(name string)

	// StoreWarning is called with a problem of a store that works, and what to do
	// about it.
	StoreWarning(name, what, advice string)

	// Uncharged is called with cost that was to be charged in the store, is not known to have
	// been, and is not sent again.
	Uncharged(zone string, why Uncharged, cost int64)

	// Live is called when the number of live instances changes.
	Live(name string, instances int)
}

// ResetObserver is an [Observer] that is notified of resets by other instances.
type ResetObserver interface {
	// Reset is called when another instance has reset a key. The receiver gives
	// the zone's counters to [Fallback.ResetLocal].
	Reset(store, zone string, k Key)

	// Unsubscribed is called when the resets of other instances cannot be
	// received though the store answers.
	Unsubscribed(store string, err error)
}
