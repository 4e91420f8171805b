package warnings

import (
	"net/netip"
	"slices"
)

var (
	bothFamilies = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

	// nobody are the networks in which no client on the internet is.
	nobody = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "224.0.0.0/3",
		"::/3", "4000::/2", "8000::/1")
)

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// coversFamily reports whether networks cover together each client of a family of addresses on the
// internet.
func coversFamily(networks []netip.Prefix, family netip.Prefix) bool {
	some := slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Addr().Is4() == family.Addr().Is4() })
	return some && covers(append(slices.Clip(networks), nobody...), family)
}

// covers reports whether networks cover another together.
func covers(networks []netip.Prefix, p netip.Prefix) bool {
	within := false
	for _, n := range networks {
		if n.Overlaps(p) && n.Bits() <= p.Bits() {
			return true
		}
		within = within || n.Overlaps(p)
	}
	if !within || p.Bits() == p.Addr().BitLen() {
		return false
	}
	low, high := halves(p)
	return covers(networks, low) && covers(networks, high)
}

// halves returns the two halves of a network.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits()
	b := p.Addr().AsSlice()
	b[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(p.Addr(), bits+1), netip.PrefixFrom(upper, bits+1)
}
