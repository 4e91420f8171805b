package limiter

import (
	"context"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/stores"
)

// Store is a store with the facts needed to decide zones in it. There is one per store of
// a configuration, so pointers can be compared.
type Store struct {
	stores.Store

	// Name is the name by which zones refer to the store.
	Name string

	// Place says where the keys are counted; empty: in this process.
	Place string

	// Hasher hashes the keys of the store.
	Hasher key.Hasher

	// Lease is the duration of leases, in microseconds; 0: no leases.
	Lease int64

	// At returns the store of the keys in the slot of a tag; nil: the store is not a
	// cluster.
	At func(tag stores.Key) stores.Store

	// Shared is the store, if instances share its counts; nil: they are local.
	Shared Shared
}

// Shared is a store whose counts are shared by several instances.
type Shared interface {
	// Hold keeps the store open until Release, also when its configuration is replaced.
	Hold()

	// Release ends what Hold began.
	Release()

	// Reset resets a key in the store, in this process and on the other instances.
	Reset(ctx context.Context, zone string, counters []*stores.Counter, k stores.Key) error

	// Share returns the limits of a counter that this instance enforces while the store
	// is unavailable.
	Share(c *stores.Counter) (rules []algorithms.Rule, inFlight int64)

	// Adopt has what this process knows of the keys of a counter and its Overrides put back after
	// a loss of the store's memory, though none of them is checked: the table may be older than
	// the counters. If one of them has Blocked, it is a counter that has.
	Adopt(c *stores.Counter)

	// ResetLocal drops the state of a key in this process.
	ResetLocal(counters []*stores.Counter, k stores.Key)
}

// local reports whether the counts are kept in this process only.
func (s *Store) local() bool { return s.Shared == nil }

// of returns the store of the keys in the slot of a tag.
func (s *Store) of(tag stores.Key) stores.Store {
	if s.At == nil {
		return s.Store
	}
	return s.At(tag)
}
