// Package key builds the keys by which zones count: it parses templates, encodes and hashes
// keys, and matches them with the patterns of overrides.
package key

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Values of key_missing: what to do if a part of a key is empty.
const (
	missingClientIP = "client_ip"
	MissingShare    = "share"
	MissingSkip     = "skip"
	missingDeny     = "deny"
)

// Plan builds a zone's key from a request.
type Plan struct {
	parts    []Template
	words    []string // the parts as configured
	Missing  string   // key_missing: client_ip, share, skip or deny
	Repeated string   // key_repeated: deny, first or join
	V4, V6   int      // prefix lengths to which addresses are masked, in bits
}

// Default lengths of address prefixes, in bits.
const (
	defaultV4 = 32
	defaultV6 = 64
)

// NewPlan returns the plan of a key with these parts. expand replaces placeholder
// shorthands by their full names. missing is the value of key_missing; empty:
// "client_ip". repeated is the value of key_repeated; empty: "deny". v4 and v6 are the prefix
// lengths to which addresses are masked; nil: 32 and 64.
func NewPlan(parts []string, expand func(string) string, missing, repeated string, v4, v6 *int) (*Plan, error) {
	p := &Plan{
		words: parts, Missing: cmp.Or(missing, missingClientIP), Repeated: cmp.Or(repeated, repeatedDeny),
		V4: defaultV4, V6: defaultV6,
	}
	switch p.Missing {
	case missingClientIP, MissingShare, MissingSkip, missingDeny:
	default:
		return nil, fmt.Errorf("key_missing %q: want client_ip, share, skip or deny", missing)
	}
	switch p.Repeated {
	case repeatedDeny, repeatedFirst, RepeatedJoin:
	default:
		return nil, fmt.Errorf("key_repeated %q: want deny, first or join", repeated)
	}
	if v4 != nil {
		p.V4 = *v4
	}
	if v6 != nil {
		p.V6 = *v6
	}
	if p.V4 < 0 || p.V4 > 32 {
		return nil, fmt.Errorf("ipv4_prefix %d: want 0 to 32", p.V4)
	}
	if p.V6 < 0 || p.V6 > 128 {
		return nil, fmt.Errorf("ipv6_prefix %d: want 0 to 128", p.V6)
	}
	if len(parts) > maxKeyParts {
		return nil, fmt.Errorf("key: %d parts: want at most %d", len(parts), maxKeyParts)
	}
	for _, s := range parts {
		t, err := Parse(expand(s))
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		if s == "" {
			return nil, errors.New(`key: an empty part: want a placeholder or a constant`)
		}
		if p.Repeated == RepeatedJoin {
			t = t.joined()
		}
		p.parts = append(p.parts, t)
	}
	return p, nil
}

// Identity returns a text that differs between plans that build different keys, and is the same
// whether defaults and the full names of placeholders are written.
func (p *Plan) Identity() string {
	return fmt.Sprintf("%q %s %s %d %d", p.Parts(), p.Missing, p.Repeated, p.V4, p.V6)
}

// Parts returns the parts with the full names of their placeholders.
func (p *Plan) Parts() []string {
	texts := make([]string, len(p.parts))
	for i, t := range p.parts {
		texts[i] = t.written()
	}
	return texts
}

// Placeholders returns the names of the placeholders in all parts.
func (p *Plan) Placeholders() (names []string) {
	for _, t := range p.parts {
		names = append(names, t.Placeholders()...)
	}
	return names
}

// ReadsBody reports whether a part has a field of the request's body, which requires a call
// of [body.ReadFields] before [Plan.Encode].
func (p *Plan) ReadsBody() bool { return slices.ContainsFunc(p.parts, Template.ReadsBody) }

// Mixes reports whether a part mixes a placeholder whose name begins with prefix with
// other text.
func (p *Plan) Mixes(prefix string) bool {
	return slices.ContainsFunc(p.parts, func(t Template) bool { return !t.single() && t.Uses(prefix) })
}

// Constant reports whether the key is the same for all requests.
func (p *Plan) Constant() bool {
	return !slices.ContainsFunc(p.parts, func(t Template) bool {
		_, constant := t.Constant()
		return !constant
	})
}

// Describe returns the parts of a request's key as text.
func (p *Plan) Describe(r *http.Request) []string {
	parts := make([]string, len(p.parts))
	for i, t := range p.parts {
		b, _ := t.append(nil, r)
		parts[i] = string(b)
	}
	return parts
}

// Empty returns the parts, as configured, that are empty in the parts of a request's key.
func (p *Plan) Empty(parts []string) (words []string) {
	for i, s := range parts {
		if s == "" {
			words = append(words, p.words[i])
		}
	}
	return words
}

// Address returns the key that counts if a part is empty: the client's address
// with key_missing client_ip, or its prefix if it is masked. It is empty with another
// key_missing, and if the address is unknown.
func (p *Plan) Address(r *http.Request) string {
	addr, ok := parseAddr(ClientIP(r))
	if !ok || p.Missing != missingClientIP {
		return ""
	}
	if bits := p.bits(addr); bits != addr.BitLen() {
		return netip.PrefixFrom(addr, bits).Masked().String()
	}
	return addr.String()
}

// maxPart is the size of the longest part that [Plan.Named] accepts, in bytes.
const maxPart = 8 << 10

// Named encodes the key with these parts.
func (p *Plan) Named(parts []string) (k Encoded, err error) {
	if len(parts) != len(p.parts) {
		return k, fmt.Errorf("%d parts: want %d, for %q, or the hash alone", len(parts), len(p.parts), p.words)
	}
	k.b = append(k.b, keyOfParts)
	for i, s := range parts {
		if len(s) > maxPart {
			return k, fmt.Errorf("part %d: want at most %d bytes", i+1, maxPart)
		}
		if s == "" && p.Missing != MissingShare {
			return k, fmt.Errorf("part %d is empty: want a value of %s", i+1, p.words[i])
		}
		if s = p.parts[i].folded(s); p.parts[i].single() {
			k.b = p.appendValue(k.b, s, &k.group)
		} else {
			k.b = appendMixed(k.b, s)
		}
		k.ends[i] = len(k.b)
	}
	return k, nil
}

const maxKeyParts = 16

// Kinds of keys. A key is encoded as its kind, followed by a tag, the length and the bytes
// of every part, so that the encoding is injective.
const (
	keyOfParts   = 0
	keyOfAddress = 1 // the client's address, because a part is empty
	keyUnknown   = 2 // a part is empty and the client's address unknown
)

const (
	tagText  = 't'
	tagMixed = 'm'
	tagV4    = '4'
	tagV6    = '6'
)

// State is the result of [Plan.Encode].
type State uint8

// Results of [Plan.Encode].
const (
	Complete State = iota // the key is complete
	Skipped               // a part is empty: the request passes uncounted
	Rejected              // a part is empty: the request is denied
	Repeated              // a part stands more than once: the request is denied
)

// Encoded is an encoded key.
type Encoded struct {
	b     []byte
	ends  [maxKeyParts]int // the end of each part in b
	group netip.Addr       // the first address in the key
}

// Bytes returns the encoded key.
func (k *Encoded) Bytes() []byte { return k.b }

// part returns the i-th part of a key of parts, encoded.
func (k *Encoded) part(i int) []byte {
	from := 1
	if i > 0 {
		from = k.ends[i-1]
	}
	return k.b[from:k.ends[i]]
}

// maxKept is the greatest capacity of a buffer that is reused, in bytes.
const maxKept = 4096

// Reset empties the key for reuse.
func (k *Encoded) Reset() {
	if cap(k.b) > maxKept || k.b == nil {
		k.b = make([]byte, 0, 256)
	}
	k.b, k.group = k.b[:0], netip.Addr{}
}

// Encode appends the key of a request to k. more reports whether a part of it is the first of
// several values, of which [Plan.KeepFirst] removes the others.
func (p *Plan) Encode(k *Encoded, r *http.Request) (state State, more bool) {
	start := len(k.b)
	k.b = append(k.b, keyOfParts)
	for i, t := range p.parts {
		var empty, repeated bool
		if t.single() {
			var v string
			v, repeated = t.value(r)
			empty = v == ""
			k.b = p.appendValue(k.b, v, &k.group)
		} else {
			k.b, empty, repeated = appendText(k.b, t, r)
		}
		k.ends[i] = len(k.b)
		if more = more || repeated; repeated && p.Repeated == repeatedDeny {
			return Repeated, true
		}
		if empty && p.Missing != MissingShare {
			k.b, k.group = k.b[:start], netip.Addr{}
			return p.encodeMissing(k, r), more
		}
	}
	return Complete, more
}

// KeepFirst removes from a request what follows the first of the values that the key counts, so
// that no next handler takes another.
func (p *Plan) KeepFirst(r *http.Request) {
	for _, t := range p.parts {
		for i := range t.pieces {
			t.pieces[i].keepFirst(r)
		}
	}
}

// encodeMissing appends the key of a request with an empty part.
func (p *Plan) encodeMissing(k *Encoded, r *http.Request) State {
	switch p.Missing {
	case MissingSkip:
		return Skipped
	case missingDeny:
		return Rejected
	}
	addr, ok := parseAddr(ClientIP(r))
	if !ok {
		k.b = append(k.b, keyUnknown)
		return Complete
	}
	k.b = append(k.b, keyOfAddress)
	k.b = p.appendAddr(k.b, addr, &k.group)
	return Complete
}

// appendValue appends a part that is a single value. Addresses are normalized and masked
// to their prefix.
func (p *Plan) appendValue(b []byte, v string, group *netip.Addr) []byte {
	if addr, ok := parseAddr(v); ok {
		return p.appendAddr(b, addr, group)
	}
	b = append(b, tagText)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func (p *Plan) appendAddr(b []byte, addr netip.Addr, group *netip.Addr) []byte {
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

func (p *Plan) mask(addr netip.Addr) netip.Addr {
	bits := p.bits(addr)
	if bits == addr.BitLen() {
		return addr
	}
	return netip.PrefixFrom(addr, bits).Masked().Addr()
}

// bits returns how many bits of an address count.
func (p *Plan) bits(addr netip.Addr) int {
	switch {
	case addr.Is4():
		return p.V4
	case localNAT64.Contains(addr):
		return addr.BitLen() // each is one IPv4 client
	}
	return p.V6
}

// appendText appends a part that mixes constants and placeholders. It is a text even if
// it looks like an address. The length, filled in afterwards, has a fixed size.
func appendText(b []byte, t Template, r *http.Request) (_ []byte, empty, more bool) {
	at := len(b)
	b, more = t.append(append(b, tagMixed, 0, 0, 0, 0), r)
	n := len(b) - at - 5
	binary.BigEndian.PutUint32(b[at+1:], uint32(n))
	return b, n == 0, more
}

// appendMixed appends the part that appendText would append for the text v.
func appendMixed(b []byte, v string) []byte {
	b = binary.BigEndian.AppendUint32(append(b, tagMixed), uint32(len(v)))
	return append(b, v...)
}

// maxAddr is the length of the longest address: an IPv4-mapped one, unabbreviated.
const maxAddr = len("0000:0000:0000:0000:0000:ffff:255.255.255.255")

// parseAddr parses an IP address, converts one that is mapped or embeds another to IPv4 and
// removes the zone. It rejects other texts without an allocation.
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
	return embedded(addr.Unmap()), true
}

// localNAT64 is the prefix of NAT64 in which each network chooses which bits are the IPv4 address
// (RFC 8215).
var localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")

// embeddings are prefixes of addresses of IPv4 hosts, by which the packets to them find their way: a
// /64 of the others would be all of IPv4, and one host would have many of 6to4 and Teredo.
var embeddings = []embedding{
	{netip.MustParsePrefix("64:ff9b::/96"), 64, 96, 0},    // NAT64 (RFC 6052)
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 64, 96, 0}, // SIIT (RFC 2765)
	{netip.MustParsePrefix("2002::/16"), 16, 16, 0},       // 6to4 (RFC 3056)
	{netip.MustParsePrefix("2001::/32"), 32, 96, 0xff},    // Teredo (RFC 4380)
}

type embedding struct {
	netip.Prefix
	least int  // bits of the shortest network of nothing but such addresses, in use
	at    int  // the bit at which the IPv4 address begins
	xor   byte // its bytes are inverted by
}

// embeddingOf returns the embedding of an address; nil: it has none.
func embeddingOf(addr netip.Addr) *embedding {
	if addr.Is4() {
		return nil
	}
	for i := range embeddings {
		if embeddings[i].Contains(addr) {
			return &embeddings[i]
		}
	}
	return nil
}

// embedded returns the IPv4 address in an address, otherwise addr.
func embedded(addr netip.Addr) netip.Addr {
	e := embeddingOf(addr)
	if e == nil {
		return addr
	}
	b := addr.As16()
	v4 := [4]byte(b[e.at/8:])
	for i := range v4 {
		v4[i] ^= e.xor
	}
	return netip.AddrFrom4(v4)
}
