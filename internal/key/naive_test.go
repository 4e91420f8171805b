package key

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A second implementation of addresses and keys, written from RFC 4291 and RFC 4007,
// with which the fuzz targets compare the product. It is simple, not fast.

var (
	octet = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})$`)
	group = regexp.MustCompile(`^[0-9a-fA-F]{1,4}$`)
)

// naiveAddr returns the 4 or 16 bytes of an address, or nil. It drops the zone and
// returns an IPv4-mapped address, and one of NAT64 (RFC 6052), SIIT (RFC 2765), 6to4 (RFC 3056) and
// Teredo (RFC 4380), as IPv4.
func naiveAddr(s string) []byte {
	text, zone, zoned := strings.Cut(s, "%")
	if !strings.Contains(text, ":") {
		if zoned {
			return nil
		}
		return naiveV4(text)
	}
	if zoned && zone == "" {
		return nil
	}
	b := naiveV6(text)
	if len(b) < 16 {
		return b
	}
	for _, prefix := range []string{"00000000000000000000ffff", "0064ff9b0000000000000000", "0000000000000000ffff0000"} {
		if hex.EncodeToString(b[:12]) == prefix {
			return b[12:]
		}
	}
	switch {
	case b[0] == 0x20 && b[1] == 0x02:
		return b[2:6]
	case hex.EncodeToString(b[:4]) == "20010000":
		return []byte{^b[12], ^b[13], ^b[14], ^b[15]}
	}
	return b
}

func naiveV4(s string) (b []byte) {
	fields := strings.Split(s, ".")
	if len(fields) != 4 {
		return nil
	}
	for _, f := range fields {
		n, err := strconv.Atoi(f)
		if !octet.MatchString(f) || err != nil || n > 255 {
			return nil
		}
		b = append(b, byte(n))
	}
	return b
}

func naiveV6(s string) []byte {
	if at := strings.LastIndex(s, ":"); strings.Contains(s[at:], ".") {
		v4 := naiveV4(s[at+1:])
		if v4 == nil {
			return nil
		}
		s = fmt.Sprintf("%s:%x%02x:%x%02x", s[:at], v4[0], v4[1], v4[2], v4[3])
	}
	sides := strings.Split(s, "::")
	if len(sides) > 2 {
		return nil
	}
	var groups [2][]string
	n := 0
	for i, side := range sides {
		if side != "" {
			groups[i] = strings.Split(side, ":")
		}
		n += len(groups[i])
	}
	if len(sides) == 1 && n != 8 || len(sides) == 2 && n > 7 {
		return nil
	}
	for n < 8 {
		groups[0] = append(groups[0], "0")
		n++
	}
	var b []byte
	for _, g := range append(groups[0], groups[1]...) {
		v, err := strconv.ParseUint(g, 16, 16)
		if !group.MatchString(g) || err != nil {
			return nil
		}
		b = append(b, byte(v>>8), byte(v))
	}
	return b
}

// naiveMask keeps the first bits of an address.
func naiveMask(b []byte, bits int) []byte {
	drop := uint(8*len(b) - bits)
	x := new(big.Int).SetBytes(b)
	x.Lsh(x.Rsh(x, drop), drop)
	return x.FillBytes(make([]byte, len(b)))
}

// naivePlan is the configuration of a key.
type naivePlan struct {
	mixed   []bool
	missing string
	v4, v6  int
}

func (p *naivePlan) bits(addr []byte) int {
	if len(addr) == 4 {
		return p.v4
	}
	if bytes.HasPrefix(addr, []byte{0, 0x64, 0xff, 0x9b, 0, 1}) { // RFC 8215
		return 128
	}
	return p.v6
}

// part returns part i of a key with this value. Equal parts are one client.
func (p *naivePlan) part(i int, v string) string {
	if p.mixed[i] {
		return "mixed " + v
	}
	if addr := naiveAddr(v); addr != nil {
		return fmt.Sprintf("address %x", naiveMask(addr, p.bits(addr)))
	}
	return "text " + v
}

// key returns the key of a list of values, and the first address in it.
func (p *naivePlan) key(values []string, ip string) (state State, key, first string) {
	var parts []string
	for i, v := range values {
		if v == "" && p.missing != MissingShare {
			return p.replacement(ip)
		}
		part := p.part(i, v)
		if addr, ok := strings.CutPrefix(part, "address "); ok && first == "" {
			first = addr
		}
		parts = append(parts, part)
	}
	return Complete, fmt.Sprintf("parts %q", parts), first
}

// replacement returns the key that is used if a part is missing.
func (p *naivePlan) replacement(ip string) (state State, key, first string) {
	switch p.missing {
	case MissingSkip:
		return Skipped, "", ""
	case missingDeny:
		return Rejected, "", ""
	}
	if addr := naiveAddr(ip); addr != nil {
		first = fmt.Sprintf("%x", naiveMask(addr, p.bits(addr)))
	}
	return Complete, "instead " + first, first
}

// The kinds of parts, by their placeholders and constants.
const (
	kindHeader   = iota // one placeholder
	kindPrefixed        // a constant before a placeholder
	kindHalves          // two placeholders
	kindConstant        // no placeholder
	numKinds
)

const constantPart = "::ffff:192.0.2.1"

// parts is the key of a zone.
type parts struct {
	Key     []string
	missing string
	v4, v6  int
}

// expand expands the only shorthand that these tests use.
func expand(s string) string { return strings.ReplaceAll(s, "{header.", "{http.request.header.") }

func (z *parts) plan() (*Plan, error) { return NewPlan(z.Key, expand, z.missing, "", &z.v4, &z.v6) }

// keyOfKinds returns a key with parts of those kinds, and its naive plan.
func keyOfKinds(kinds []int, missing string, v4, v6 int) (*parts, *naivePlan) {
	z := &parts{missing: missing, v4: v4, v6: v6}
	p := &naivePlan{missing: missing, v4: v4, v6: v6}
	for i, kind := range kinds {
		a := fmt.Sprintf("{http.request.header.A%d}", i)
		part := map[int]string{
			kindHeader: a, kindPrefixed: "x" + a, kindHalves: fmt.Sprintf("%s{header.B%d}", a, i), kindConstant: constantPart,
		}[kind]
		z.Key = append(z.Key, part)
		p.mixed = append(p.mixed, kind == kindPrefixed || kind == kindHalves)
	}
	return z, p
}

// requestOfParts returns a request with those values in its headers, and the parts of
// its key, constants included.
func requestOfParts(kinds []int, values []string, ip string) (*http.Request, []string) {
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Header: http.Header{}}
	r = r.WithContext(context.WithValue(context.Background(), caddyhttp.VarsCtxKey, map[string]any{caddyhttp.ClientIPVarKey: ip}))
	var parts []string
	for i, kind := range kinds {
		half := len(values[i])
		if kind == kindHalves {
			half /= 2
		}
		a, b := values[i][:half], values[i][half:]
		r.Header[fmt.Sprintf("A%d", i)] = []string{a}
		r.Header[fmt.Sprintf("B%d", i)] = []string{b}
		a, b = strings.Trim(a, " \t"), strings.Trim(b, " \t") // as servers do for HTTP/1
		switch kind {
		case kindPrefixed:
			a = "x" + a
		case kindConstant:
			a = constantPart
		}
		values[i] = a + b
		parts = append(parts, values[i])
	}
	return r, parts
}
