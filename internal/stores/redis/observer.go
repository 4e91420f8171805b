package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/stores"
)

type (
	// Observer is told what happens to a store.
	Observer = stores.Observer
	// ResetObserver is told of keys that were reset.
	ResetObserver = stores.ResetObserver
)

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

func (noObserver) StoreUp(string, string)                    {}
func (noObserver) StoreDown(string, string, Failure, error)  {}
func (noObserver) StoreError(string, Failure, error)         {}
func (noObserver) ClockSteps(string)                         {}
func (noObserver) Live(string, int)                          {}
func (noObserver) StoreWarning(string, string, string)       {}
func (noObserver) Uncharged(string, stores.Uncharged, int64) {}
