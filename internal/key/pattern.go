package key

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Pattern matches keys, part by part.
type Pattern struct {
	parts  []partMatch
	weight int // specificity
	words  []string

	// Narrow is set if a part is an address or a network that is narrower than the
	// zone's prefix: it matches the whole network of that prefix.
	Narrow bool
}

// Pattern parses the key of an override: as many parts as the zone's key, each "*", a
// CIDR or a value. It rejects a part that no client's address can equal.
func (p *Plan) Pattern(parts []string) (*Pattern, error) {
	if len(parts) != len(p.parts) {
		return nil, fmt.Errorf("%d parts: want %d, as the zone's key has", len(parts), len(p.parts))
	}
	v := &Pattern{words: parts}
	for i, s := range parts {
		m, weight, err := p.matchPart(s, p.parts[i])
		if err != nil {
			return nil, err
		}
		v.parts = append(v.parts, m)
		v.weight += weight
		v.Narrow = v.Narrow || p.parts[i].single() && p.narrow(s)
		if p.parts[i].isClientIP() && m.exact != nil {
			if _, ok := addrOf(m.exact); !ok {
				return nil, fmt.Errorf("%q is no client's address: want an address, a CIDR or *", s)
			}
		}
	}
	return v, nil
}

// Single reports whether the pattern matches exactly one key.
func (v *Pattern) Single() bool { return v.weight == exactWeight*len(v.parts) }

// Any reports whether the pattern matches every key.
func (v *Pattern) Any() bool {
	return !slices.ContainsFunc(v.parts, func(p partMatch) bool { return !p.any })
}

// Words returns the parts as text.
func (v *Pattern) Words() []string { return slices.Clone(v.words) }

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
	switch {
	case s == "":
		return partMatch{}, 0, errors.New("an empty part: want a value, a CIDR or *")
	case strings.Contains(s, "{env.") || strings.Contains(s, "{file."):
		return partMatch{}, 0, errors.New("{env.*} and {file.*} are not replaced in a key: want a value, such as in a Caddyfile {$NAME} for that of a variable, or a file of keys")
	}
	if part.single() {
		if err := CheckPrefix(s); err != nil {
			return partMatch{}, 0, err
		}
	}
	if prefix, err := netip.ParsePrefix(s); err == nil && part.single() {
		if e := embeddingOf(prefix.Addr()); e != nil && prefix.Bits() >= e.least {
			v4 := netip.PrefixFrom(embedded(prefix.Addr()), min(max(0, prefix.Bits()-e.at), 32)).Masked()
			return partMatch{}, 0, fmt.Errorf("%s: the clients of NAT64, 6to4 and Teredo count by their IPv4 addresses: want %s", s, v4)
		}
		bits := min(prefix.Bits(), p.bits(prefix.Addr()))
		prefix = netip.PrefixFrom(prefix.Addr(), bits).Masked()
		return partMatch{prefix: prefix}, weightOf(prefix), nil
	}
	if s = part.folded(s); part.single() {
		var group netip.Addr
		return partMatch{exact: p.appendValue(nil, s, &group)}, exactWeight, nil
	}
	return partMatch{exact: appendMixed(nil, s)}, exactWeight, nil
}

// CheckPrefix rejects an address with a prefix that it cannot have, such as 10.0.0.0/33, which would
// count as any other text, and a network of mapped addresses, to which no client's address belongs.
func CheckPrefix(s string) error {
	text, bits, _ := strings.Cut(s, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || bits == "" || strings.Trim(bits, "0123456789") != "" {
		return nil //nolint:nilerr // it is nothing like a network
	}
	if _, err := netip.ParsePrefix(s); err != nil {
		return fmt.Errorf("%q: prefix %s: want 0 to %d, such as %s/%d", s, bits, addr.BitLen(), addr, addr.BitLen())
	}
	if addr.Is4In6() {
		return fmt.Errorf("%s: want the IPv4 form of the network", s)
	}
	return nil
}

// narrow reports whether a text is an address or a network narrower than the zone's prefix.
func (p *Plan) narrow(s string) bool {
	net, err := netip.ParsePrefix(s)
	if err != nil {
		addr, ok := parseAddr(s)
		if !ok {
			return false
		}
		net = netip.PrefixFrom(addr, addr.BitLen())
	}
	return net.Bits() > p.bits(net.Addr())
}

// weightOf returns the specificity of a network: more than the one of *, and more the longer
// it is as a network of IPv6 addresses, to which IPv4 addresses are mapped.
func weightOf(prefix netip.Prefix) int {
	family := 0
	if prefix.Addr().Is4() {
		family = 96
	}
	return 1 + prefix.Bits() + family
}

// addrOf returns the address that an encoded part is; false if it is none.
func addrOf(part []byte) (netip.Addr, bool) {
	if part[0] == tagText || part[0] == tagMixed {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(part[1:])
}
