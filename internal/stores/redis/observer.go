package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/stores/observers"
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
		to = observers.None{}
	}
	o.current.Store(&to)
}

func (o *observer) get() Observer { return *o.current.Load() }
