package diana

import (
	"context"
	"errors"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/dianalimiter/diana/internal/stores"
	"github.com/dianalimiter/diana/internal/stores/redis"
)

// Forgetting a key: what is counted of it, and what prevent_duplicates remembers
// of its requests.

const (
	forgottenEverywhere = "everywhere"
	forgottenHere       = "in this instance"
)

// forget forgets a key: in this process, and with a shared store in Redis and
// in the other instances.
func (a *App) forget(ctx context.Context, z *zone, k namedKey) statusOfKey {
	s := statusOfKey{Zone: z.Name, Key: k.key.String(), Parts: k.parts, Forgotten: forgottenEverywhere, Rules: []statusOfKeyRule{}}
	shared, ok := z.store.(*redis.Store)
	if !ok {
		for _, c := range a.counters(z.Name, nil) {
			c.Reset(k.key)
		}
		_ = a.forgetTwins(ctx, z.Name, nil, k.key) // which only Redis can refuse
		s.Forgotten = forgottenHere
	} else if err := errors.Join(a.forgetTwins(ctx, z.Name, shared, k.key), shared.Reset(ctx, z.Name, a.counters(z.Name, shared), k.key)); err != nil {
		s.Forgotten, s.Error = forgottenHere, short(err)
		a.logger.Error("a key is forgotten in this instance only", zap.String("zone", z.Name), zap.String("key", s.Key), errField(err))
		return s.next(ctx, z, k)
	}
	a.logger.Info("a key is forgotten", zap.String("zone", z.Name), zap.String("key", s.Key), zap.String("where", s.Forgotten))
	return s.next(ctx, z, k)
}

// next adds where the key stands now.
func (s statusOfKey) next(ctx context.Context, z *zone, k namedKey) statusOfKey {
	now := z.look(ctx, k)
	now.Forgotten, now.Error = s.Forgotten, s.Error
	return now
}

// counters are those of a zone's rules and overrides, each once, of all handlers
// that count in a store; nil: any.
func (a *App) counters(zone string, in *redis.Store) (list []*stores.Counter) {
	seen := make(map[any]bool)
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			if z.Name != zone || in != nil && z.store != stores.Store(in) {
				continue
			}
			for _, set := range z.terms.Load().sets() {
				if c := set.counter; c != nil && !seen[c.Table] {
					seen[c.Table] = true
					list = append(list, c)
				}
			}
		}
	}
	return list
}

// Reset implements redis.ResetObserver.
func (a *App) Reset(store, zone string, k stores.Key) {
	s := a.byName[store]
	if s == nil || checkName(zone) != nil {
		return
	}
	defer s.ResetLocal(a.counters(zone, s.Store), k) // last: until then denials may be remembered anew
	if err := a.forgetTwins(a.ctx, zone, s.Store, k); err != nil && !errors.Is(err, redis.ErrAway) {
		a.logger.Warn("what prevent_duplicates remembers of a key is forgotten in part", zap.String("zone", zone), errField(err))
	}
}

// Unsubscribed implements redis.ResetObserver.
func (a *App) Unsubscribed(store string, err error) {
	if a.deaf.allow() {
		a.logger.Error("Redis refuses the channel on which other instances say which keys to forget", zap.String("store", store), zap.Error(err),
			zap.String("advice", "give the user +subscribe, +ping and its channels: the README has the whole line"))
	}
}

var _ redis.ResetObserver = (*App)(nil)

// twins are the requests that this instance admitted last to a zone with
// prevent_duplicates: what they are remembered by says nothing of their key.
// They outlive a reload.
type twins struct {
	mu   sync.Mutex
	list []twinOf // of maxTwins at most
	next int      // the oldest, when there are so many
}

type twinOf struct{ key, twin stores.Key }

const maxTwins = 16_384

// Destruct implements caddy.Destructor.
func (*twins) Destruct() error { return nil }

// memories are the twins of the zones that run.
var memories = caddy.NewUsagePool() // sketchKey → *twins

// provisionTwins takes the zone's twins.
func (z *zone) provisionTwins() {
	key := z.identity()
	v, _, _ := memories.LoadOrNew(key, func() (caddy.Destructor, error) { return new(twins), nil })
	z.refs.add(memories, key)
	z.twins, _ = v.(*twins) // nothing else is put there
}

func (t *twins) add(key, twin stores.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.list) < maxTwins {
		t.list = append(t.list, twinOf{key, twin})
		return
	}
	t.list[t.next] = twinOf{key, twin}
	t.next = (t.next + 1) % maxTwins
}

// of are the twins of a key.
func (t *twins) of(key stores.Key) (list []stores.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.list {
		if x.key == key {
			list = append(list, x.twin)
		}
	}
	return list
}

// forgetTwins forgets the requests of a key that this instance admitted to a zone
// in a store, or in any.
func (a *App) forgetTwins(ctx context.Context, zone string, in *redis.Store, k stores.Key) (err error) {
	for _, h := range a.remote.list() {
		for _, z := range h.zones {
			if z.Name != zone || z.twins == nil || in != nil && z.store != stores.Store(in) {
				continue
			}
			list, c := z.twins.of(k), z.terms.Load().duplicates.counter
			if in != nil {
				err = errors.Join(err, in.ResetFingerprints(ctx, c, k, list))
				continue
			}
			for _, twin := range list {
				c.Reset(twin)
			}
		}
	}
	return err
}
