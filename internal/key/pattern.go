package key

import (
	"errors"
	"fmt"
	"net/netip"
)

// Pattern matches keys, part by part.
type Pattern struct {
	parts  []partMatch
	weight int // specificity
}

// Pattern parses the key of an override: as many parts as the zone's key, each "*", a
// CIDR or a value.
func (p *Plan) Pattern(parts []string) (*Pattern, error) {
	if len(parts) != len(p.parts) {
		return nil, fmt.Errorf("%d parts: want %d, as the zone's key has", len(parts), len(p.parts))
	}
	v := new(Pattern)
	for i, s := range parts {
		m, weight, err := p.matchPart(s, p.parts[i])
		if err != nil {
			return nil, err
		}
		v.parts = append(v.parts, m)
		v.weight += weight
	}
	return v, nil
}

// Single reports whether the pattern matches exactly one key.
func (v *Pattern) Single() bool { return v.weight == exactWeight*len(v.parts) }

// partMatch matches one part of a key.
type partMatch struct {
	any    bool
	prefix netip.Prefix // if valid, matches the addresses in it
	exact  []byte       // otherwise, matches the part with this encoding
}

const exactWeight = 1 << 16 // exceeds the sum of the weights of all prefixes

func (p *Plan) matchPart(s string, part Template) (partMatch, int, error) {
	if s == "*" {
		return partMatch{any: true}, 0, nil
	}
	if s == "" {
		return partMatch{}, 0, errors.New("an empty part: want a value, a CIDR or *")
	}
	if prefix, err := netip.ParsePrefix(s); err == nil && part.single() {
		if prefix.Addr().Is4In6() {
			return partMatch{}, 0, fmt.Errorf("%s: want the IPv4 form of the network", s)
		}
		masked, family := p.V6, 0
		if prefix.Addr().Is4() {
			masked, family = p.V4, 96 // as a prefix of IPv4-mapped addresses
		}
		bits := min(prefix.Bits(), masked)
		return partMatch{prefix: netip.PrefixFrom(prefix.Addr(), bits).Masked()}, 1 + bits + family, nil
	}
	if part.single() {
		var group netip.Addr
		return partMatch{exact: p.appendValue(nil, s, &group)}, exactWeight, nil
	}
	return partMatch{exact: appendMixed(nil, s)}, exactWeight, nil
}

// matches reports whether the pattern matches a key.
func (v *Pattern) matches(k *Encoded) bool {
	if k.b[0] != keyOfParts {
		return false
	}
	from := 1
	for i := range v.parts {
		if !v.parts[i].matches(k.b[from:k.ends[i]]) {
			return false
		}
		from = k.ends[i]
	}
	return true
}

func (m *partMatch) matches(part []byte) bool {
	switch {
	case m.any:
		return true
	case m.prefix.IsValid():
		addr, ok := netip.AddrFromSlice(part[1:])
		return ok && part[0] != tagText && part[0] != tagMixed && m.prefix.Contains(addr)
	}
	return string(part) == string(m.exact)
}
