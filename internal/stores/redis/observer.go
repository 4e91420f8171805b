package redis

import (
	"sync/atomic"

	"github.com/dianalimiter/diana/internal/stores/observers"
	"github.com/dianalimiter/diana/stores"
)

// observer holds the current Observer of a store.
type observer struct {
	name    string // of the store
	current atomic.Pointer[stores.Observer]
}

func (o *observer) set(to stores.Observer) {
	if to == nil {
		to = observers.None{}
	}
	o.current.Store(&to)
}

func (o *observer) get() stores.Observer { return *o.current.Load() }
