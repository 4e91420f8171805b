package key

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/dianalimiter/diana/stores/hash"
)

// Index maps keys to the value of the most specific pattern that matches. Single keys are in a
// map, and networks of keys of one part in a trie, so that 100,000 cost as much as one. The
// others, of which there are [MaxMixed] at most, are tried one after the other.
type Index[T comparable] struct {
	exact map[hash.Key]T // by single keys
	nets  *bart.Table[T] // of keys of one part; nil: none
	mixed []mixed[T]     // the most specific first
}

// mixed is a pattern with * or, beside other parts, a network.
type mixed[T comparable] struct {
	pattern *Pattern
	value   T
}

// MaxMixed is how many patterns with * or, of several parts, with a network an index has at most.
const MaxMixed = 1000

// Add adds a pattern. Of patterns of a single key or a network the first is kept, whose value Add
// returns; twice says that it is of a single key.
func (x *Index[T]) Add(p *Pattern, h Hasher, value T) (first T, twice bool, err error) {
	switch {
	case p.Single():
		first, twice = x.addSingle(p, h, value)
	case len(p.parts) == 1 && !p.parts[0].any:
		if x.nets == nil {
			x.nets = new(bart.Table[T])
		}
		known, is := x.nets.Get(p.parts[0].prefix)
		if is {
			return known, false, nil
		}
		x.nets.Insert(p.parts[0].prefix, value)
	case len(x.mixed) == MaxMixed:
		err = fmt.Errorf("over %d keys of several parts with * or a network: want fewer", MaxMixed)
	default:
		at := slices.IndexFunc(x.mixed, func(m mixed[T]) bool { return m.pattern.weight < p.weight })
		if at < 0 {
			at = len(x.mixed)
		}
		x.mixed = slices.Insert(x.mixed, at, mixed[T]{p, value})
	}
	return first, twice, err
}

func (x *Index[T]) addSingle(p *Pattern, h Hasher, value T) (first T, twice bool) {
	b := []byte{keyOfParts}
	for _, part := range p.parts {
		b = append(b, part.exact...)
	}
	k := h.Hash(b)
	if first, twice = x.exact[k]; twice {
		return first, true
	}
	if x.exact == nil {
		x.exact = make(map[hash.Key]T)
	}
	x.exact[k] = value
	return first, false
}

// Find returns the value of the most specific pattern that matches a key with this hash. If k is
// empty, only patterns of exactly this key are found.
func (x *Index[T]) Find(k *Encoded, key hash.Key) (value T, ok bool) {
	if len(x.exact) > 0 {
		if value, ok = x.exact[key]; ok {
			return value, true
		}
	}
	if len(k.b) == 0 || k.b[0] != keyOfParts {
		return value, false
	}
	if x.nets != nil {
		if addr, is := addrOf(k.part(0)); is {
			if value, ok = x.nets.Lookup(addr); ok {
				return value, true
			}
		}
	}
	if m := x.findMixed(k); m != nil {
		return m.value, true
	}
	return value, false
}

// FindIf is Find among the patterns whose value is wanted.
func (x *Index[T]) FindIf(k *Encoded, key hash.Key, wanted func(T) bool) (value T, ok bool) {
	if first, ok := x.Find(k, key); !ok || wanted(first) {
		return first, ok
	}
	if len(k.b) == 0 || k.b[0] != keyOfParts {
		return value, false
	}
	if x.nets != nil {
		if addr, is := addrOf(k.part(0)); is {
			for _, v := range x.nets.Supernets(netip.PrefixFrom(addr, addr.BitLen())) { // the longest first
				if wanted(v) {
					return v, true
				}
			}
		}
	}
	for i := range x.mixed {
		if m := &x.mixed[i]; wanted(m.value) && m.pattern.matches(k) {
			return m.value, true
		}
	}
	return value, false
}

func (x *Index[T]) findMixed(k *Encoded) *mixed[T] {
	for i := range x.mixed {
		if x.mixed[i].pattern.matches(k) {
			return &x.mixed[i]
		}
	}
	return nil
}

// matches reports whether a key of parts matches.
func (v *Pattern) matches(k *Encoded) bool {
	for i := range v.parts {
		p := &v.parts[i]
		if p.any {
			continue
		}
		b := k.part(i)
		if !p.prefix.IsValid() {
			if !bytes.Equal(p.exact, b) {
				return false
			}
		} else if addr, ok := addrOf(b); !ok || !p.prefix.Contains(addr) {
			return false
		}
	}
	return true
}

// Describe returns the pattern that Find finds for a key, whose parts are known as text.
func (x *Index[T]) Describe(k *Encoded, key hash.Key, parts []string) []string {
	if _, ok := x.exact[key]; ok || k.b[0] != keyOfParts {
		return parts
	}
	if x.nets != nil {
		if addr, is := addrOf(k.part(0)); is {
			if net, _, ok := x.nets.LookupPrefixLPM(netip.PrefixFrom(addr, addr.BitLen())); ok {
				return []string{net.String()}
			}
		}
	}
	if m := x.findMixed(k); m != nil {
		return m.pattern.words
	}
	return parts
}
