// Package pool shares values between configurations, so that they survive reloads: a new
// configuration is provisioned before the old one is cleaned up, so a value that both
// use is never destructed.
package pool

import (
	"errors"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

// Pool is a set of values in use, by key.
type Pool[T caddy.Destructor] struct{ values *caddy.UsagePool }

var (
	poolsMu sync.Mutex
	pools   = make(map[string]*caddy.UsagePool)
)

// New returns a pool with a unique name.
func New[T caddy.Destructor](name string) *Pool[T] {
	poolsMu.Lock()
	defer poolsMu.Unlock()
	pools[name] = caddy.NewUsagePool()
	return &Pool[T]{pools[name]}
}

// Values returns the values in use of the pool with this name.
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

// Take returns the value of a key and adds a reference to it. If the key is not in use,
// the value is created by create.
func (p *Pool[T]) Take(r *References, key any, create func() T) T {
	v, _, _ := p.values.LoadOrNew(key, func() (caddy.Destructor, error) { return create(), nil })
	*r = append(*r, reference{p.values, key})
	value, _ := v.(T) // the pool holds no other type
	return value
}

// References are references to values taken from pools. The zero value is empty.
type References []reference

type reference struct {
	pool *caddy.UsagePool
	key  any
}

// Release releases all references. A value without references is destructed.
func (r *References) Release() error {
	var errs []error
	for _, ref := range *r {
		_, err := ref.pool.Delete(ref.key)
		errs = append(errs, err)
	}
	*r = nil
	return errors.Join(errs...)
}
