package limiter

import (
	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/stores"
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
	Shared stores.Shared
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
