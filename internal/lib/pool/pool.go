// Package pool shares values between configurations, so that they survive reloads: a new
// configuration is provisioned before the old one is cleaned up, so a value that both
// use is never destructed.
package pool

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
)

// values are the values of all pools, by id.
var values = caddy.NewUsagePool()

// Pool is the unique name of a set of values in use, by key.
type Pool[T caddy.Destructor] string

// id identifies a value.
type id struct {
	pool string
	key  any
}

// Values returns the values in use of the pool with this name.
func Values(name string) (list []any) {
	values.Range(func(key, value any) bool {
		if key.(id).pool == name {
			list = append(list, value)
		}
		return true
	})
	return list
}

// Acquire returns the value of a key and adds a reference to it. If the key is not in use,
// the value is created by create.
func (p Pool[T]) Acquire(r *References, key any, create func() T) T {
	v, _, _ := values.LoadOrNew(id{string(p), key}, func() (caddy.Destructor, error) { return create(), nil })
	*r = append(*r, id{string(p), key})
	value, _ := v.(T) // the pool holds no other type
	return value
}

// References are references to values of pools. The zero value is empty.
type References []id

// Release releases all references. A value without references is destructed.
func (r *References) Release() error {
	var errs []error
	for _, ref := range *r {
		_, err := values.Delete(ref)
		errs = append(errs, err)
	}
	*r = nil
	return errors.Join(errs...)
}
