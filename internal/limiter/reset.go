package limiter

import (
	"cmp"
	"context"

	"github.com/dianalimiter/diana/stores"
)

// Reset resets a key of a zone in this process and, if the counts are shared, in the
// store and on the other instances. What prevent_duplicates remembers stays: its fingerprints
// do not tell their key. Requests that wait ask again.
func (r *Registry) Reset(ctx context.Context, z *Zone, k stores.Key) error {
	err := r.reset(ctx, z, k)
	if z.repeated {
		err = cmp.Or(err, r.reset(ctx, z, apartKey(k)))
	}
	r.tellReset(z.Name, k)
	return err
}

// reset is Reset for one key of the store.
func (r *Registry) reset(ctx context.Context, z *Zone, k stores.Key) error {
	if z.store.local() {
		for _, c := range r.counters(z.Name, nil) {
			c.Reset(k)
		}
		return nil
	}
	return z.store.Shared.Reset(ctx, z.Name, r.counters(z.Name, z.store), k)
}

// ResetElsewhere drops the local state of a key that another instance has reset in a
// store.
func (r *Registry) ResetElsewhere(in *Store, zone string, k stores.Key) {
	if in.fallback != nil {
		in.fallback.ResetLocal(r.counters(zone, in), k)
	}
	r.tellReset(zone, k)
}

// tellReset tells the requests of a key that wait in a zone that it has been reset.
func (r *Registry) tellReset(zone string, k stores.Key) {
	for _, z := range r.Zones() {
		if z.Name == zone {
			z.common.queue.wasReset(k)
		}
	}
}

// counters returns the counters of a zone's rules and overrides in a store, each once;
// nil: in any store.
func (r *Registry) counters(zone string, in *Store) (list []*stores.Counter) {
	type tables struct{ table, blocked stores.Table }
	seen := make(map[tables]bool)
	for _, z := range r.Zones() {
		if z.Name != zone || in != nil && z.store != in {
			continue
		}
		for _, s := range z.active.Load().sets {
			// An override's rules may share their table with rules that do not block.
			if id := (tables{s.counter.Table, s.counter.Blocked}); !s.Duplicates && !seen[id] {
				seen[id] = true
				list = append(list, s.counter)
			}
		}
	}
	return list
}
