package key

import (
	"net/netip"

	"github.com/gaissmai/bart"

	"github.com/dianalimiter/diana/internal/stores"
)

// Index maps keys to the value of the most specific pattern that matches. It takes as long
// for one pattern as for 100,000: single keys are in a map, and other patterns in a tree
// with a level for each part of the key, in which networks are in a trie.
type Index[T comparable] struct {
	exact  map[stores.Key]T // by single keys
	levels []level          // the first one is the root
	values []T              // of the tree, in the order in which they were added
	last   int              // the index of the last part of a key
}

// level is the patterns that begin alike, by their next part. A child is the index of the
// next level or, for the last part, of a value.
type level struct {
	exact map[string]int32   // by encoded part
	nets  *bart.Table[int32] // by network; nil: none
	any   int32              // of *; none: -1
}

const none = -1

// Add adds a pattern. Of patterns that match the same keys the first is kept. If that is of
// a single key, Add returns its value and true.
func (x *Index[T]) Add(p *Pattern, h Hasher, value T) (first T, twice bool) {
	if p.Single() {
		return x.addSingle(p, h, value)
	}
	if len(x.levels) == 0 {
		x.newLevel()
		x.last = len(p.parts) - 1
	}
	at := int32(0)
	for i := range x.last {
		at = x.child(at, &p.parts[i], x.newLevel)
	}
	x.child(at, &p.parts[x.last], func() int32 { return x.valueOf(value) })
	return first, false
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
		x.exact = make(map[stores.Key]T)
	}
	x.exact[k] = value
	return first, false
}

func (x *Index[T]) newLevel() int32 {
	x.levels = append(x.levels, level{any: none})
	return int32(len(x.levels) - 1)
}

// valueOf returns the index of a value, which patterns added one after the other share.
func (x *Index[T]) valueOf(value T) int32 {
	if n := len(x.values); n == 0 || x.values[n-1] != value {
		x.values = append(x.values, value)
	}
	return int32(len(x.values) - 1)
}

// child returns the child of a level for a part. It is created by create if there is none.
func (x *Index[T]) child(at int32, part *partMatch, create func() int32) (child int32) {
	l := &x.levels[at]
	switch {
	case part.any:
		child = l.any
	case part.prefix.IsValid():
		if l.nets == nil {
			l.nets = new(bart.Table[int32])
		}
		if n, ok := l.nets.Get(part.prefix); ok {
			return n
		}
		child = create()
		x.levels[at].nets.Insert(part.prefix, child)
		return child
	default:
		if n, ok := l.exact[string(part.exact)]; ok {
			return n
		}
		child = create()
		if l = &x.levels[at]; l.exact == nil { // create may have moved it
			l.exact = make(map[string]int32)
		}
		l.exact[string(part.exact)] = child
		return child
	}
	if child == none {
		child = create()
		x.levels[at].any = child
	}
	return child
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
	if len(x.levels) == 0 || k.b[0] != keyOfParts {
		return value, false
	}
	s := search{key: k, value: none}
	x.search(&s, 0, 0, 0)
	if s.value == none {
		return value, false
	}
	return x.values[s.value], true
}

// search is the search for the most specific pattern that matches a key.
type search struct {
	key    *Encoded
	value  int32 // of the most specific pattern so far; none: -1
	weight int   // of that pattern
	path   ways  // to the present level
	best   ways  // of the most specific pattern so far
}

// ways is how the parts of a pattern match: the length of a network, or exactly or any.
type ways [maxKeyParts]int16

const (
	wayExact = -1
	wayAny   = -2
)

// search searches a level for the part of the key that begins at from. weight is that of
// the parts before it. The branches lead to different patterns, so that no more of them are
// taken than patterns match.
func (x *Index[T]) search(s *search, at int32, part int, weight int) {
	l, b := &x.levels[at], s.key.part(part)
	if len(l.exact) > 0 {
		if child, ok := l.exact[string(b)]; ok {
			x.take(s, child, part, wayExact, weight+exactWeight)
			if part == x.last {
				return // the others are less specific
			}
		}
	}
	if l.nets != nil {
		if addr, ok := addrOf(b); ok {
			x.searchNets(s, l, addr, part, weight)
		}
	}
	if l.any != none {
		x.take(s, l.any, part, wayAny, weight)
	}
}

// searchNets takes the networks of a level that contain an address, the longest first; for
// the last part only that.
func (x *Index[T]) searchNets(s *search, l *level, addr netip.Addr, part, weight int) {
	for bits := addr.BitLen(); bits >= 0; {
		net, child, ok := l.nets.LookupPrefixLPM(netip.PrefixFrom(addr, bits))
		if !ok {
			return
		}
		x.take(s, child, part, int16(net.Bits()), weight+weightOf(net))
		if part == x.last {
			return
		}
		bits = net.Bits() - 1
	}
}

// take takes a branch: it searches the next level or, after the last part, keeps the
// pattern if it is more specific, or as specific and added earlier.
func (x *Index[T]) take(s *search, child int32, part int, how int16, weight int) {
	s.path[part] = how
	if part < x.last {
		x.search(s, child, part+1, weight)
		return
	}
	if s.value == none || weight > s.weight || weight == s.weight && child < s.value {
		s.value, s.weight, s.best = child, weight, s.path
	}
}

// Describe returns the pattern that Find finds for a key, whose parts are known as text.
func (x *Index[T]) Describe(k *Encoded, key stores.Key, parts []string) []string {
	if _, ok := x.exact[key]; ok || len(x.levels) == 0 || k.b[0] != keyOfParts {
		return parts
	}
	s := search{key: k, value: none}
	x.search(&s, 0, 0, 0)
	words := make([]string, len(parts))
	for i, text := range parts {
		switch how := s.best[i]; how {
		case wayExact:
			words[i] = text
		case wayAny:
			words[i] = "*"
		default:
			addr, _ := addrOf(k.part(i))
			words[i] = netip.PrefixFrom(addr, int(how)).Masked().String()
		}
	}
	return words
}
