package key

import (
	"slices"

	"github.com/dianalimiter/diana/internal/stores"
)

// Index maps keys to the value of the most specific pattern that matches.
type Index[T any] struct {
	exact    map[stores.Key]T
	patterns []indexed[T] // by descending weight
}

type indexed[T any] struct {
	pattern *Pattern
	value   T
}

// Add adds a pattern. It returns false if the index has a pattern of the same single key.
func (x *Index[T]) Add(p *Pattern, h Hasher, value T) bool {
	if !p.Single() {
		at, _ := slices.BinarySearchFunc(x.patterns, p.weight, func(e indexed[T], weight int) int {
			if e.pattern.weight < weight {
				return 1
			}
			return -1 // after those of the same weight
		})
		x.patterns = slices.Insert(x.patterns, at, indexed[T]{p, value})
		return true
	}
	b := []byte{keyOfParts}
	for _, part := range p.parts {
		b = append(b, part.exact...)
	}
	k := h.Hash(b)
	if _, twice := x.exact[k]; twice {
		return false
	}
	if x.exact == nil {
		x.exact = make(map[stores.Key]T)
	}
	x.exact[k] = value
	return true
}

// Exact returns the value of the pattern of exactly this key.
func (x *Index[T]) Exact(key stores.Key) (value T, ok bool) {
	value, ok = x.exact[key]
	return value, ok
}

// Find returns the value of the most specific pattern that matches a key with this hash.
func (x *Index[T]) Find(k *Encoded, key stores.Key) (value T, ok bool) {
	if len(x.exact) > 0 {
		if value, ok = x.exact[key]; ok {
			return value, true
		}
	}
	for i := range x.patterns {
		if e := &x.patterns[i]; e.pattern.matches(k) {
			return e.value, true
		}
	}
	return value, false
}
