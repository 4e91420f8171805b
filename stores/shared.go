package stores

import (
	"context"
	"errors"
	"time"
)

// Shared is a store whose counts are shared by several instances. The other interfaces of this
// file are for what a store may do in addition.
type Shared interface {
	Store

	// Status returns what the store says of itself. Name, Place, OnFailure, Lease and Clustered
	// do not change.
	Status() Status

	// Reset resets a key under all counters of a zone: in the store, in this process and on the
	// other instances. With [ErrUnavailable] only this process has reset it, with [ErrUnannounced] this
	// process and the store.
	Reset(ctx context.Context, zone string, counters []*Counter, k Key) error
}

// Starter is a [Shared] store that connects.
type Starter interface {
	// Start connects in the background, once, when a configuration with the store runs. live is
	// the number of live instances last seen at [Status.Place], also by an earlier process; 0:
	// unknown. A request may have come before.
	Start(live int)
}

// Observed is a [Shared] store that reports its events.
type Observed interface {
	// Observe replaces the observer. nil: nobody observes the store.
	Observe(to Observer)

	// Instances returns [Status.Instances]. Unlike Status, an observer may call it.
	Instances() int64
}

// Timed is a [Store] with a timeout.
type Timed interface {
	// Timeout returns the longest that a decision takes.
	Timeout() time.Duration
}

// Slotted is a [Shared] store that decides only keys of one slot together, if its Status says
// Clustered.
type Slotted interface {
	// At returns the store for the keys of one tag. What it returns for equal tags
	// compares as equal: zones whose stores are equal are decided together.
	At(tag Key) Store
}

// Kept is a [Shared] store that stays open while it is used, also when its configuration is
// replaced.
type Kept interface {
	// Hold keeps the store open until Release.
	Hold()

	// Release ends what Hold began.
	Release()
}

// Fallback is a [Shared] store that decides in this process while it is unavailable.
type Fallback interface {
	// Share returns the limits of a counter that this instance enforces while the store
	// is unavailable.
	Share(c *Counter) Enforced

	// Adopt registers a counter and its Overrides. After a loss of the store's memory, the store puts
	// back what this process knows of their keys, also of keys that are not checked: the table may be
	// older than the counters. If one of them has Blocked, it is a counter that has.
	Adopt(c *Counter)

	// ResetLocal drops the state of a key in this process.
	ResetLocal(counters []*Counter, k Key)
}

// Successor is a [Shared] store that takes over what another one of its kind knows, when a
// configuration replaces the other. What is of another kind is ignored.
type Successor interface {
	// Begin lets a store that was not started yet begin in the mode of the one that had its name, or else of one
	// at its place.
	Begin(before Shared)

	// BeginAs lets a store that was not started yet begin with what another one knows.
	BeginAs(before Shared)

	// PassOn lets another store at the same place charge what this one still owes.
	PassOn(next Shared)
}

// Errors of [Shared] stores.
var (
	// ErrUnavailable says that the store was not asked, or did not answer: who resets a key has
	// reset it in this process only, and who looks at a [Fleet] sees none.
	ErrUnavailable = errors.New("the store is unavailable")

	// ErrUnannounced is for [Shared.Reset].
	ErrUnannounced = errors.New("the key was reset in the store, but other instances were not told")
)

// Status is what a shared store says of itself.
type Status struct {
	// Name is the store's name in the configuration, in logs and in metrics.
	Name string

	// Place says where the keys are: stores at one place share their counts. Empty: the store
	// shares them with none of another name.
	Place string

	// OnFailure says what happens to requests while the store is unavailable.
	OnFailure OnFailure

	// Lease is for how many microseconds hot keys are charged in advance; 0: they are not.
	Lease int64

	// Clustered says whether keys are distributed over nodes.
	Clustered bool

	// Up says whether all nodes are used.
	Up bool

	// Since is since when that is so, or not.
	Since time.Time

	// Down are the nodes that are not used, longest first.
	Down []NodeDown

	// Instances is the number of live instances last seen; 0: none ever was.
	Instances int64

	// Readers is how many of them read documents of the present format.
	Readers int64

	// Enforced is the part of each limit that this instance enforces without the store, 0 to 1;
	// 0: it counts nothing.
	Enforced float64

	// Calls are the totals of the store's calls.
	Calls CallStats

	// Leases are the totals of its leases; nil: it has none.
	Leases *LeaseStats
}

// NodeDown is a node that is not used.
type NodeDown struct {
	Address string    // host:port in a cluster, empty otherwise
	Since   time.Time // when it was given up
}

// CallStats are the totals of a store's calls.
type CallStats struct {
	// Calls is the number of calls that were sent, answered or not.
	Calls uint64

	// Checks is the number of checks, and of charges after responses, that were batched
	// into them.
	Checks uint64

	// Took is the sum of the calls' durations, seen from this instance.
	Took time.Duration
}

// LeaseStats are the totals of a store's leases.
type LeaseStats struct {
	// Times is the number of leases.
	Times uint64

	// Granted is the cost that was charged in advance.
	Granted uint64

	// Spent is the part of Granted that requests were charged.
	Spent uint64
}

// OnFailure says what happens to requests while a shared store is unavailable.
type OnFailure uint8

// What happens to requests while a shared store is unavailable.
const (
	FailLocal OnFailure = iota // this instance decides, with its share of the limits
	FailAllow                  // every request is admitted
	FailDeny                   // every request is denied
)

// String returns the word for it in the configuration.
func (f OnFailure) String() string { return [...]string{"local", "allow", "deny"}[f] }

// Mode says who decides then.
func (f OnFailure) Mode() Mode { return [...]Mode{ModeFallback, ModeAllow, ModeDeny}[f] }
