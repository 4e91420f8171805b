package limiter

import (
	"context"

	"github.com/dianalimiter/diana/internal/key"
	"github.com/dianalimiter/diana/internal/stores"
)

// Store is a store, and what deciding about zones in it needs to know of it. There is
// one for each store of a configuration: two are the same store if they are the same
// pointer.
type Store struct {
	stores.Store

	// Name is the name by which zones choose the store.
	Name string

	// Hasher hashes the keys of the store.
	Hasher key.Hasher

	// Lease is for how long the store may charge parts of limits in advance, in
	// microseconds. 0: it does not.
	Lease int64

	// At returns the store of the keys that share a slot with a tag; nil: the keys
	// are in one place.
	At func(tag stores.Key) stores.Store

	// Shared is the store's way to reset keys for all instances; nil: the counts are
	// those of this process.
	Shared Shared
}

// Shared is a store whose counts are shared by several instances.
type Shared interface {
	// Reset resets a key in the store, in this process and in the other
	// instances.
	Reset(ctx context.Context, zone string, counters []*stores.Counter, k stores.Key) error

	// ResetFingerprints resets what is remembered of the requests of a key.
	ResetFingerprints(ctx context.Context, c *stores.Counter, k stores.Key, fingerprints []stores.Key) error

	// ResetLocal drops what this process knows of a key.
	ResetLocal(counters []*stores.Counter, k stores.Key)
}

// local reports whether the counts are those of this process.
func (s *Store) local() bool { return s.Shared == nil }

// of returns the store of the keys that share a slot with a tag.
func (s *Store) of(tag stores.Key) stores.Store {
	if s.At == nil {
		return s.Store
	}
	return s.At(tag)
}
