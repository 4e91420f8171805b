package limiter

import (
	"context"
	"errors"

	"github.com/dianalimiter/diana/internal/stores"
)

// Reset resets a key of a zone in this process and, if the counts are shared, in the
// store and on the other instances.
func (r *Registry) Reset(ctx context.Context, z *Zone, k stores.Key) error {
	if z.store.local() {
		for _, c := range r.counters(z.Name, nil) {
			c.Reset(k)
		}
		return r.resetDuplicates(ctx, z.Name, nil, k)
	}
	return errors.Join(r.resetDuplicates(ctx, z.Name, z.store, k), z.store.Shared.Reset(ctx, z.Name, r.counters(z.Name, z.store), k))
}

// ResetElsewhere drops the local state of a key that another instance has reset in a
// store.
func (r *Registry) ResetElsewhere(ctx context.Context, in *Store, zone string, k stores.Key) error {
	defer in.Shared.ResetLocal(r.counters(zone, in), k) // last, because denials may be cached until then
	return r.resetDuplicates(ctx, zone, in, k)
}

// counters returns the counters of a zone's rules and overrides in a store, each once;
// nil: in any store.
func (r *Registry) counters(zone string, in *Store) (list []*stores.Counter) {
	seen := make(map[stores.Table]bool)
	for _, z := range r.Zones() {
		if z.Name != zone || in != nil && z.store != in {
			continue
		}
		for _, s := range z.active.Load().sets {
			if !s.Duplicates && !seen[s.counter.Table] {
				seen[s.counter.Table] = true
				list = append(list, s.counter)
			}
		}
	}
	return list
}

// resetDuplicates resets the prevent_duplicates state of the requests of a key that this
// instance admitted, in a zone in a store; nil: in any store.
func (r *Registry) resetDuplicates(ctx context.Context, zone string, in *Store, k stores.Key) (err error) {
	for _, z := range r.Zones() {
		if z.Name != zone || z.fingerprints == nil || in != nil && z.store != in {
			continue
		}
		list, c := z.fingerprints.of(k), z.active.Load().duplicates.counter
		if in != nil {
			err = errors.Join(err, in.Shared.ResetFingerprints(ctx, c, k, list))
			continue
		}
		for _, fp := range list {
			c.Reset(fp)
		}
	}
	return err
}
