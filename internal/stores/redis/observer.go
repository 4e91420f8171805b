package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/stores"
)

// Observer is notified of the events of a store. Its methods must not block.
type Observer interface {
	// StoreUp is called when a node is used again, or when others have replaced it.
	// node is its address in a Cluster, and empty otherwise. It and StoreDown are called
	// in the order of the changes, with the locks of the nodes held, so they must take no
	// lock that is held while a store is called. Of its methods they may call those that
	// return an option or a count, such as [Store.OnFailure] and [Store.Instances], and
	// not [Store.State].
	StoreUp(name, node string)

	// StoreDown is called when a node is no longer used. node is as for StoreUp.
	StoreDown(name, node string, f Failure, cause error)

	// StoreError is called for each failed call.
	StoreError(name string, f Failure, err error)

	// ClockSteps is called for each state that was repaired after a step of
	// Redis' clock.
	ClockSteps(name string)

	// StoreWarning is called with a problem of a Redis that works, and what to do
	// about it.
	StoreWarning(name, what, advice string)

	// Uncharged is called with the cost of responses that is not known to have been charged
	// in Redis, and is not sent again.
	Uncharged(zone string, cost int64)

	// Live is called when the number of live instances changes.
	Live(name string, instances int)
}

// ResetObserver is an [Observer] that is notified of resets by other instances.
type ResetObserver interface {
	// Reset is called when another instance has reset a key. The receiver gives
	// the zone's counters to [Store.ResetLocal].
	Reset(store, zone string, k stores.Key)

	// Unsubscribed is called when the resets of other instances cannot be
	// received though Redis answers.
	Unsubscribed(store string, err error)
}

// observer holds the current Observer of a store.
type observer struct {
	name    string // of the store
	current atomic.Pointer[Observer]
}

func (o *observer) set(to Observer) {
	if to == nil {
		to = noObserver{}
	}
	o.current.Store(&to)
}

func (o *observer) get() Observer { return *o.current.Load() }

// noObserver ignores all events.
type noObserver struct{}

func (noObserver) StoreUp(string, string)                   {}
func (noObserver) StoreDown(string, string, Failure, error) {}
func (noObserver) StoreError(string, Failure, error)        {}
func (noObserver) ClockSteps(string)                        {}
func (noObserver) Live(string, int)                         {}
func (noObserver) StoreWarning(string, string, string)      {}
func (noObserver) Uncharged(string, int64)                  {}
