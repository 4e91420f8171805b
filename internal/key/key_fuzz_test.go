package key

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// keySide is one of two keys that are compared.
type keySide struct {
	kinds  []int
	values []string
	plan   *naivePlan
	built  Encoded
	state  State
	want   State
	naive  string
}

// newKeySide builds a key of up to three parts, whose number and kinds are encoded in
// shape, and what it must be equal to.
func newKeySide(t *testing.T, shape uint16, values []string, missing, ip string, v4, v6 int) *keySide {
	s := new(keySide)
	for i := range 1 + int(shape)%len(values) {
		s.kinds = append(s.kinds, int(shape>>(2+2*i))%numKinds)
	}
	z, plan := keyOfKinds(s.kinds, missing, v4, v6)
	s.plan = plan
	p, err := z.plan()
	if err != nil {
		t.Fatalf("%q: %v", z.Key, err)
	}
	r, parts := requestOfParts(s.kinds, append([]string(nil), values...), ip)
	s.values = parts
	s.state, _ = p.Encode(&s.built, r)
	var first string
	s.want, s.naive, first = plan.key(s.values, ip)
	if s.state != s.want {
		t.Fatalf("%q %q: state %d, want %d", z.Key, s.values, s.state, s.want)
	}
	if got := fmt.Sprintf("%x", s.built.group.AsSlice()); s.state == Complete && got != first {
		t.Errorf("%q %q: the key's first address is %s, want %s", z.Key, s.values, got, first)
	}
	return s
}

// checkEnds compares each part with a key of that part only.
func (s *keySide) checkEnds(t *testing.T, ip string) {
	if s.state != Complete || !strings.HasPrefix(s.naive, "parts ") {
		return
	}
	from := 1
	for i, kind := range s.kinds {
		end := s.built.ends[i]
		if end < from || end > len(s.built.b) {
			t.Fatalf("%q: part %d ends at %d of %d, the part before it at %d", s.values, i, end, len(s.built.b), from)
		}
		z, _ := keyOfKinds([]int{kind}, MissingShare, s.plan.v4, s.plan.v6)
		p, err := z.plan()
		if err != nil {
			t.Fatal(err)
		}
		var single Encoded
		v := s.values[i]
		if kind == kindPrefixed {
			v = v[1:]
		}
		r, _ := requestOfParts([]int{kind}, []string{v}, ip)
		p.Encode(&single, r)
		if !bytes.Equal(s.built.b[from:end], single.b[1:]) {
			t.Errorf("%q: part %d is %x, want %x as in a key of its own", s.values, i, s.built.b[from:end], single.b[1:])
		}
		from = end
	}
	if from != len(s.built.b) {
		t.Errorf("%q: the last part ends at %d of %d", s.values, from, len(s.built.b))
	}
}

// FuzzKey builds two keys. Their encodings are equal if and only if they have equal
// parts, or both lack a part and are replaced by the same address.
func FuzzKey(f *testing.F) {
	long := strings.Repeat("x", 5000)
	for _, c := range [][6]string{
		{"ab", "c", "", "a", "bc", ""},
		{"a", "", "b", "", "a", "b"},
		{"t\x01a", "", "", "t", "a", ""},
		{"10.0.0.1", "a", "", "::ffff:10.0.0.1%eth0", "a", ""},
		{"10.0.0.1", "a", "", "4\x0a\x00\x00\x01", "a", ""},
		{"fe80::1%eth0", "2001:db8::1", "x", "fe80::2%eth1", "2001:DB8:0:0::9", "x"},
		{"192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1", "x192.0.2.1", ""},
		{long, "1", "", long + "1", "", ""},
		{"\x00", "\xff", "m\x00\x00\x00\x01a", "", "", ""},
	} {
		for _, shapes := range [][2]uint16{{2, 2}, {2, 1}, {0b000110, 0b001010}, {0b10010010, 0b01100110}, {0b11110010, 2}} {
			f.Add(c[0], c[1], c[2], c[3], c[4], c[5], "10.0.0.1", shapes[0], shapes[1], uint8(len(c[0])), uint8(24), uint8(64), uint16(0))
		}
	}
	f.Fuzz(func(t *testing.T, a0, a1, a2, b0, b1, b2, ip string, shapeA, shapeB uint16, missing, v4, v6 uint8, times uint16) {
		if n := int(times) % 5000; len(a0)*n < 1<<17 {
			a0 += strings.Repeat(a0, n)
		}
		m := []string{missingClientIP, MissingShare, MissingSkip, missingDeny}[missing%4]
		a := newKeySide(t, shapeA, []string{a0, a1, a2}, m, ip, int(v4)%33, int(v6)%129)
		b := newKeySide(t, shapeB, []string{b0, b1, b2}, m, ip, int(v4)%33, int(v6)%129)
		a.checkEnds(t, ip)
		b.checkEnds(t, ip)
		if a.state != Complete || b.state != Complete {
			return
		}
		same, want := bytes.Equal(a.built.b, b.built.b), a.naive == b.naive
		if same != want {
			t.Errorf("%s is %x and %s is %x: equal %v, want %v", a.naive, a.built.b, b.naive, b.built.b, same, want)
		}
		if h := NewHasher("s"); (h.Hash(a.built.b) == h.Hash(b.built.b)) != want {
			t.Errorf("the hashes of %s and %s are equal: %v, want %v", a.naive, b.naive, !want, want)
		}
	})
}

// writtenAddr formats the address of b in one of its notations.
func writtenAddr(b []byte, form uint8) string {
	var raw [16]byte
	copy(raw[:], b)
	if form&1 != 0 {
		return netip.AddrFrom4([4]byte(raw[:4])).String()
	}
	if form&2 != 0 {
		copy(raw[:], append(make([]byte, 10), 0xff, 0xff))
	}
	addr := netip.AddrFrom16(raw)
	s := addr.String()
	switch {
	case form&4 != 0:
		s = addr.StringExpanded()
	case form&8 != 0: // all groups, without leading zeros
		var groups []string
		for i := 0; i < 16; i += 2 {
			groups = append(groups, fmt.Sprintf("%X", binary.BigEndian.Uint16(raw[i:])))
		}
		s = strings.Join(groups, ":")
	case form&16 != 0:
		v4 := netip.AddrFrom4([4]byte(raw[12:])).String()
		s = fmt.Sprintf("%x:%x:%x:%x:%x:%x:%s", raw[:2], raw[2:4], raw[4:6], raw[6:8], raw[8:10], raw[10:12], v4)
	}
	if form&32 != 0 {
		s = strings.ToUpper(s)
	}
	if form&64 != 0 {
		s += "%" + strings.Repeat("eth0", 1+len(b))
	}
	return s
}

// FuzzAddress parses arbitrary text, and an address in one of its notations, and
// masks both to a prefix.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{
		"10.0.0.1", "::ffff:10.0.0.1", "::FFFF:0a00:0001", "0:0:0:0:0:ffff:10.0.0.1", "::ffff:10.0.0.1%eth0", "::10.0.0.1",
		"64:ff9b::10.0.0.1", "64:FF9B::a00:1%eth0", "64:ff9b::1:a00:1", "64:ff9b:1::a00:1", "64:ff9b:2::a00:1",
		"::ffff:0:10.0.0.1", "::ffff:1:10.0.0.1", "2002:a00:1::1", "2003:a00:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:1::1",
		"2001:db8::1", "2001:DB8:0:0:ffff::1", "fe80::1%eth0", "fe80::1%", "fe80::1%a%b", "10.0.0.1%eth0", "::", "::1", "1::", ":::",
		"1:2:3:4:5:6:7::", "1:2:3:4:5:6:7::8", "1:2:3:4:5:6:1.2.3.4", "1::2::3", "12345::", "1.2.3.4::", ":1", "1:",
		"010.0.0.1", "10.0.0", "10.0.0.256", "10.0.0.1 ", "10.0.0.1:80", "[::1]", "10.0.0.1/32", "::ffff:1.2.3.04", "1.2.3.4.5", "",
		"fe80::1%" + strings.Repeat("z", 100), "a.b", "..", "fade:", "0x1.2.3.4", "1e1.2.3.4", "::-1", "::+1", "٣.0.0.1",
	} {
		f.Add(s, []byte("\x0a\x00\x00\x01"), uint8(1), uint8(24), uint8(64))
	}
	for form := range 128 {
		f.Add("", []byte("\x20\x01\x0d\xb8\x00\x00\x00\x01\x00\x00\x00\x00\xc0\x00\x02\x01"), uint8(form), uint8(form%33), uint8(form+1))
	}
	f.Fuzz(func(t *testing.T, s string, raw []byte, form, v4, v6 uint8) {
		written := writtenAddr(raw, form)
		if naiveAddr(written) == nil {
			t.Fatalf("naiveAddr rejects the address %q", written)
		}
		p := &Plan{V4: int(v4) % 33, V6: int(v6) % 129}
		n := &naivePlan{v4: p.V4, v6: p.V6}
		for _, s := range []string{s, written} {
			want := naiveAddr(s)
			addr, ok := parseAddr(s)
			if ok != (want != nil) || !bytes.Equal(addr.AsSlice(), want) {
				t.Fatalf("%q is parsed as %v, %v: want %x", s, addr, ok, want)
			}
			if !ok {
				continue
			}
			if addr.Zone() != "" {
				t.Errorf("%q keeps the zone %s", s, addr.Zone())
			}
			if got, want := p.mask(addr).AsSlice(), naiveMask(want, n.bits(want)); !bytes.Equal(got, want) {
				t.Errorf("%q masked to %d bits is %x, want %x", s, n.bits(want), got, want)
			}
		}
	})
}
