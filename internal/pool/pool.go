// Package pool shares what outlives a reload. A new configuration is provisioned
// before the old one is cleaned up, so that what both use is never let go.
package pool

import (
	"errors"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

// Pool holds the values that configurations use, by key.
type Pool[T caddy.Destructor] struct{ values *caddy.UsagePool }

var (
	poolsMu sync.Mutex
	pools   = make(map[string]*caddy.UsagePool)
)

// New returns a pool with a name of its own.
func New[T caddy.Destructor](name string) *Pool[T] {
	poolsMu.Lock()
	defer poolsMu.Unlock()
	pools[name] = caddy.NewUsagePool()
	return &Pool[T]{pools[name]}
}

// Values returns what the pool of a name holds: what is in use.
func Values(name string) (list []any) {
	poolsMu.Lock()
	defer poolsMu.Unlock()
	if p := pools[name]; p != nil {
		p.Range(func(_, value any) bool {
			list = append(list, value)
			return true
		})
	}
	return list
}

// Take returns the value of a key, which is created if it is not in use yet.
func (p *Pool[T]) Take(r *References, key any, create func() T) T {
	v, _, _ := p.values.LoadOrNew(key, func() (caddy.Destructor, error) { return create(), nil })
	*r = append(*r, reference{p.values, key})
	value, _ := v.(T) // nothing else is put there
	return value
}

// References are what was taken from pools, to be given back once. The zero value
// is none.
type References []reference

type reference struct {
	pool *caddy.UsagePool
	key  any
}

// Release gives back everything that was taken.
func (r *References) Release() error {
	var errs []error
	for _, ref := range *r {
		_, err := ref.pool.Delete(ref.key)
		errs = append(errs, err)
	}
	*r = nil
	return errors.Join(errs...)
}
