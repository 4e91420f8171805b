// Package process holds what Diana keeps for a process, whatever its configuration. A
// program is one process, except in test/simulation, which runs several instances in one
// program. Nothing in a configuration can name a process.
package process

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
)

// Process is what one instance keeps between configurations.
type Process struct {
	// ID is the ID among the instances that share a Redis.
	ID uint64

	// Dial opens connections to Redis and to sources of rules. nil: over the network of
	// this machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Clock is the clock of an instance that is offline, in microseconds: it counts alone,
	// whatever its stores, and no source of rules is read. nil: it is not offline.
	Clock func() int64
}

// program is the process of this program.
var program = &Process{ID: rand.Uint64()} //nolint:gosec // it only has to be unique

type contextKey struct{}

// With returns a context whose configuration runs in a process of its own.
func With(ctx context.Context, p *Process) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// Of returns the process in which a configuration runs: with one exception, the program.
func Of(ctx context.Context) *Process {
	if p, ok := ctx.Value(contextKey{}).(*Process); ok {
		return p
	}
	return program
}

// Program returns the process of this program.
func Program() *Process { return program }

// Var is a variable with a value for each process.
type Var[T any] struct {
	New func() *T // creates the value of a process; nil: the zero value

	mu     sync.Mutex
	values map[*Process]*T
}

// Of returns the variable of a process. nil: this program's.
func (v *Var[T]) Of(p *Process) *T {
	if p == nil {
		p = program
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	value := v.values[p]
	if value == nil {
		if value = new(T); v.New != nil {
			value = v.New()
		}
		if v.values == nil {
			v.values = make(map[*Process]*T)
		}
		v.values[p] = value
	}
	return value
}
