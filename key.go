package diana

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"net/netip"
	"strings"

	"github.com/dchest/siphash"

	"github.com/dianalimiter/diana/internal/stores"
)

// What to do when a part of a key is empty.
const (
	missingClientIP = "client_ip"
	missingShare    = "share"
	missingSkip     = "skip"
	missingDeny     = "deny"
)

// keyPlan says how a zone's key is built from a request.
type keyPlan struct {
	parts   []template
	missing string
	v4, v6  int // bits of an address that tell clients apart
}

// newKeyPlan checks a zone's key.
func newKeyPlan(z *Zone) (*keyPlan, error) {
	p := &keyPlan{missing: z.KeyMissing, v4: 32, v6: 64}
	switch z.KeyMissing {
	case "":
		p.missing = missingClientIP
	case missingClientIP, missingShare, missingSkip, missingDeny:
	default:
		return nil, fmt.Errorf("key_missing %q: want client_ip, share, skip or deny", z.KeyMissing)
	}
	if z.IPv4Prefix != nil {
		p.v4 = *z.IPv4Prefix
	}
	if z.IPv6Prefix != nil {
		p.v6 = *z.IPv6Prefix
	}
	if p.v4 < 0 || p.v4 > 32 {
		return nil, fmt.Errorf("ipv4_prefix %d: want 0 to 32", p.v4)
	}
	if p.v6 < 0 || p.v6 > 128 {
		return nil, fmt.Errorf("ipv6_prefix %d: want 0 to 128", p.v6)
	}
	key := z.Key
	if len(key) == 0 {
		key = []string{"{client_ip}"}
	}
	if len(key) > maxKeyParts {
		return nil, fmt.Errorf("key: %d parts: want at most %d", len(key), maxKeyParts)
	}
	for _, s := range key {
		t, err := parseTemplate(s)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		if s == "" {
			return nil, errors.New(`key: an empty part: want a placeholder or a constant`)
		}
		p.parts = append(p.parts, t)
	}
	return p, nil
}

const maxKeyParts = 16

// A key is encoded as its kind and then every part as a tag, its length and its
// bytes, so that no two different lists of parts are encoded alike.
const (
	keyOfParts   = 0
	keyOfAddress = 1 // key_missing client_ip: no list of parts is encoded so
	keyUnknown   = 2 // and there is not even an address
)

const (
	tagText  = 't'
	tagMixed = 'm'
	tagV4    = '4'
	tagV6    = '6'
)

// keyState is what came of building a key.
type keyState uint8

const (
	keyBuilt keyState = iota
	keySkip
	keyDenied
)

// built is an encoded key.
type built struct {
	b     []byte
	ends  [maxKeyParts]int // where each part ends
	group netip.Addr       // the first address in it
}

// build encodes the key of a request into k.b, which it appends to.
func (p *keyPlan) build(k *built, r *http.Request) keyState {
	start := len(k.b)
	k.b = append(k.b, keyOfParts)
	for i, t := range p.parts {
		var empty bool
		if t.single() {
			v := t.value(r)
			empty = v == ""
			k.b = p.appendValue(k.b, v, &k.group)
		} else {
			k.b, empty = appendText(k.b, t, r)
		}
		k.ends[i] = len(k.b)
		if empty && p.missing != missingShare {
			k.b, k.group = k.b[:start], netip.Addr{}
			return p.instead(k, r)
		}
	}
	return keyBuilt
}

// instead is the key of a request that lacks a part.
func (p *keyPlan) instead(k *built, r *http.Request) keyState {
	switch p.missing {
	case missingSkip:
		return keySkip
	case missingDeny:
		return keyDenied
	}
	addr, ok := parseAddr(clientIP(r))
	if !ok {
		k.b = append(k.b, keyUnknown)
		return keyBuilt
	}
	k.b = append(k.b, keyOfAddress)
	k.b = p.appendAddr(k.b, addr, &k.group)
	return keyBuilt
}

// appendValue appends a part that is one value: an address in one form, cut to
// its prefix, anything else as it is.
func (p *keyPlan) appendValue(b []byte, v string, group *netip.Addr) []byte {
	if addr, ok := parseAddr(v); ok {
		return p.appendAddr(b, addr, group)
	}
	b = append(b, tagText)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func (p *keyPlan) appendAddr(b []byte, addr netip.Addr, group *netip.Addr) []byte {
	addr = p.mask(addr)
	if !group.IsValid() {
		*group = addr
	}
	if addr.Is4() {
		a := addr.As4()
		return append(append(b, tagV4), a[:]...)
	}
	a := addr.As16()
	return append(append(b, tagV6), a[:]...)
}

func (p *keyPlan) mask(addr netip.Addr) netip.Addr {
	bits := p.v6
	if addr.Is4() {
		bits = p.v4
	}
	if bits == addr.BitLen() {
		return addr
	}
	return netip.PrefixFrom(addr, bits).Masked().Addr()
}

// appendText appends a part that mixes constants and placeholders: a text,
// whatever it looks like. Its length is known only afterwards and so has a
// fixed size.
func appendText(b []byte, t template, r *http.Request) (_ []byte, empty bool) {
	at := len(b)
	b = t.append(append(b, tagMixed, 0, 0, 0, 0), r)
	n := len(b) - at - 5
	binary.BigEndian.PutUint32(b[at+1:], uint32(n))
	return b, n == 0
}

// appendMixed appends what such a part would be if it came to v.
func appendMixed(b []byte, v string) []byte {
	b = binary.BigEndian.AppendUint32(append(b, tagMixed), uint32(len(v)))
	return append(b, v...)
}

// maxAddr is the length of the longest address, an IPv4-mapped one in full.
const maxAddr = len("0000:0000:0000:0000:0000:ffff:255.255.255.255")

// parseAddr reads an IP address, brings an IPv4-mapped one to IPv4 and cuts the
// zone off, however long. It rejects what is no address without an allocation.
func parseAddr(s string) (netip.Addr, bool) {
	n, separated := 0, false
	for ; n < len(s) && s[n] != '%'; n++ {
		switch c := s[n]; {
		case n == maxAddr:
			return netip.Addr{}, false
		case c == '.' || c == ':':
			separated = true
		case (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F'):
			return netip.Addr{}, false
		}
	}
	if !separated {
		return netip.Addr{}, false
	}
	s, zone, zoned := strings.Cut(s, "%")
	addr, err := netip.ParseAddr(s)
	if err != nil || zoned && (zone == "" || addr.Is4()) {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// hasher makes the names of keys: 128 bits of SipHash-2-4 under a secret.
type hasher struct{ k0, k1 uint64 }

func newHasher(secret string) hasher {
	sum := sha256.Sum256([]byte("diana key " + secret))
	return hasher{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

func (h hasher) key(b []byte) stores.Key {
	hi, lo := siphash.Hash128(h.k0, h.k1, b)
	return stores.Key{Hi: hi, Lo: lo}
}

// groupOf is what the keys of one network have in common: the /16 of an IPv4
// or the /48 of an IPv6 address. A key without an address is its own group.
func (h hasher) groupOf(k *built, key stores.Key) uint32 {
	if !k.group.IsValid() {
		return uint32(key.Lo)
	}
	a := k.group.As16()
	net := binary.BigEndian.Uint64(a[:]) >> 16
	if k.group.Is4() {
		net = 1<<63 | uint64(a[12])<<8 | uint64(a[13])
	}
	hi, lo := bits.Mul64(net^h.k0, h.k1|1)
	return uint32(hi ^ lo)
}
