package limiter

import (
	"cmp"

	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/stores"
)

// Store is a store with the facts needed to decide zones in it. There is one per store of
// a configuration, so pointers can be compared.
type Store struct {
	stores.Store

	// Name is the name by which zones refer to the store.
	Name string

	// Module is the name of the store's Caddy module; empty: it is the local one.
	Module string

	// Place says where the keys are counted; empty: in this process.
	Place string

	// OnFailure says what happens to requests while a shared store is unavailable.
	OnFailure stores.OnFailure

	// Hasher hashes the keys of the store.
	Hasher key.Hasher

	// Lease is the duration of leases, in microseconds; 0: no leases.
	Lease int64

	// Shared is the store, if instances share its counts; nil: they are local.
	Shared stores.Shared

	at       func(tag stores.Key) stores.Store // nil: the store is not a cluster
	kept     stores.Kept                       // the store, if it is to be told of its uses; nil: it is not
	fallback stores.Fallback                   // the store, if it falls back on this process; nil: it does not
}

// NewShared returns a store whose counts are shared.
func NewShared(shared stores.Shared, name string, hasher key.Hasher) *Store {
	status := shared.Status()
	s := &Store{Store: shared, Shared: shared, Name: name, Place: cmp.Or(status.Place, name), OnFailure: status.OnFailure, Hasher: hasher, Lease: status.Lease}
	if slotted, ok := shared.(stores.Slotted); ok && status.Clustered {
		s.at = slotted.At
	}
	s.kept, _ = shared.(stores.Kept)
	s.fallback, _ = shared.(stores.Fallback)
	return s
}

// local reports whether the counts are kept in this process only.
func (s *Store) local() bool { return s.Shared == nil }

// of returns the store of the keys in the slot of a tag.
func (s *Store) of(tag stores.Key) stores.Store {
	if s.at == nil {
		return s.Store
	}
	return s.at(tag)
}
