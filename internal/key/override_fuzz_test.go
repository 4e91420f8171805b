package key

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exactly is the specificity of a part that matches one value. It is 0 for *, and
// 1 plus the length of the prefix for a network.
const exactly = 1 << 10

// naiveMatch returns the specificity of each part of an override, or nil if it does
// not match the key.
func (p *naivePlan) naiveMatch(override, values []string) (exact []int) {
	for i, s := range override {
		e, ok := p.naiveMatch1(i, s, values[i])
		if !ok {
			return nil
		}
		exact = append(exact, e)
	}
	return exact
}

func (p *naivePlan) naiveMatch1(i int, s, value string) (exact int, ok bool) {
	if s == "*" {
		return 0, true
	}
	if net, bits := naivePrefix(s); net != nil && !p.mixed[i] {
		bits = min(bits, p.bits(net))
		addr := naiveAddr(value)
		if len(addr) != len(net) {
			return 0, false
		}
		return 1 + bits, string(naiveMask(addr, bits)) == string(naiveMask(net, bits))
	}
	return exactly, p.part(i, s) == p.part(i, value)
}

// naivePrefix parses a CIDR.
func naivePrefix(s string) (addr []byte, bits int) {
	text, length, ok := strings.Cut(s, "/")
	bits, err := strconv.Atoi(length)
	if !ok || err != nil || strconv.Itoa(bits) != length || strings.Contains(text, "%") {
		return nil, 0
	}
	if addr = naiveAddr(text); bits < 0 || bits > 8*len(addr) {
		return nil, 0
	}
	return addr, bits
}

// beats says whether an override of specificity a must have precedence over one of b:
// it has more exact parts, or is more specific in one part and less in none. Otherwise
// the implementation chooses the order.
func beats(a, b []int) bool {
	exactA, exactB, more, less := 0, 0, false, false
	for i := range a {
		if a[i] == exactly {
			exactA++
		}
		if b[i] == exactly {
			exactB++
		}
		more, less = more || a[i] > b[i], less || a[i] < b[i]
	}
	return exactA > exactB || more && !less
}

// randomOverrides returns overrides and a key with many equal parts, chosen by a seed.
func randomOverrides(seed uint64) (list []string, key string) {
	r := rand.New(rand.NewPCG(seed, 2))
	parts := 1 + r.IntN(3)
	if r.IntN(4) == 0 {
		parts = 1 + r.IntN(maxKeyParts)
	}
	pool := []string{"10.1.2.3", "10.1.2.4", "10.200.0.1", "::ffff:10.1.2.3", "2001:db8::1", "2001:db8::2:1", "gold", "10.1.2.3/32"}
	line := func(word func() string) string {
		words := make([]string, parts)
		for i := range words {
			words[i] = word()
		}
		return strings.Join(words, " ")
	}
	value := func() string { return pool[r.IntN(len(pool))] }
	pattern := func() string {
		switch r.IntN(4) {
		case 0:
			return "*"
		case 1:
			return fmt.Sprintf("10.1.2.3/%d", r.IntN(33))
		case 2:
			return fmt.Sprintf("2001:db8::1/%d", r.IntN(129))
		}
		return value()
	}
	for range 1 + r.IntN(12) {
		list = append(list, line(pattern))
	}
	return list, line(value)
}

// FuzzOverride finds the override of a key. A list has one override per line, with its
// parts separated by spaces. If it is empty, the seed chooses one.
func FuzzOverride(f *testing.F) {
	for i, c := range [][2]string{
		{"10.0.0.0/8 *\n10.1.0.0/16 *\n10.1.0.1 *\n10.1.0.1 gold\n* blocked", "10.1.0.1 blocked"},
		{"* *\n10.1.0.0/16 *\n10.0.0.0/8 gold", "::ffff:10.1.0.1 gold"},
		{"0.0.0.0/0\n::/0\n*", "text"},
		{"10.0.0.0/24\n10.0.0.5\n10.0.0.0/32", "10.0.0.77"},
		{"2001:db8::/32\n2001:db8::/48\n2001:db8::1/128", "2001:db8::2"},
		{"::ffff:10.0.0.0/104\n10.0.0.0/8", "10.1.1.1"},
		{"fe80::%eth0/10\n10.0.0.0/08\n*", "fe80::1%eth1"},
		{"{env.X}\n{host}\n{file./x}-y", "{env.X}"},
		{"* * *\n* a *\nb * *\n* * c", "b a c"},
		{strings.Repeat("10.1.2.3/32 ", 15) + "*\n" + strings.Repeat("* ", 15) + "gold", strings.Repeat("10.1.2.3 ", 15) + "gold"},
	} {
		f.Add(c[0], c[1], uint8(32-8*(i%2)), uint8(64), uint16(0), uint64(0))
		f.Add(c[0], c[1], uint8(32), uint8(128), uint16(0x1234), uint64(i))
		f.Add("", "", uint8(32-i), uint8(128-8*i), uint16(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, lines, key string, v4, v6 uint8, kinds uint16, seed uint64) {
		list := strings.Split(lines, "\n")
		if lines == "" {
			list, key = randomOverrides(seed)
		}
		values := strings.Split(key, " ")
		if len(values) > maxKeyParts || len(list) > 50 {
			return // not an input of this target
		}
		k := newOverrideCase(t, values, kinds, int(v4)%33, int(v6)%129)
		for _, line := range list {
			k.add(strings.Split(line, " "))
		}
		k.check()
	})
}

// overrideCase is a key and the overrides of a zone.
type overrideCase struct {
	*testing.T
	zone   *parts
	naive  *naivePlan
	plan   *Plan
	values []string
	built  Encoded
	list   []*Pattern
	keys   [][]string
}

func newOverrideCase(t *testing.T, values []string, shape uint16, v4, v6 int) *overrideCase {
	kinds := make([]int, len(values))
	for i := range kinds {
		kinds[i] = []int{kindHeader, kindHalves}[shape>>i&1]
	}
	k := &overrideCase{T: t}
	k.zone, k.naive = keyOfKinds(kinds, MissingShare, v4, v6)
	var err error
	if k.plan, err = k.zone.plan(); err != nil {
		t.Fatal(err)
	}
	r, parts := requestOfParts(kinds, values, "")
	k.values = parts
	k.plan.Encode(&k.built, r)
	return k
}

// add adds an override to the zone, if it is valid.
func (k *overrideCase) add(key []string) {
	k.Helper()
	v, err := k.plan.Pattern(key)
	if wrong := len(key) != len(k.values) || slices.Contains(key, ""); err != nil {
		if !wrong && !slices.ContainsFunc(key, isMappedPrefix) && !slices.ContainsFunc(key, isNearlyPrefix) && !slices.ContainsFunc(key, isUnreplaced) {
			k.Errorf("override %q: %v", key, err)
		}
		return
	} else if wrong {
		k.Errorf("override %q of a key with %d parts is accepted", key, len(k.values))
		return
	}
	k.list, k.keys = append(k.list, v), append(k.keys, key)
}

// isMappedPrefix says whether s is a network of IPv4-mapped addresses, which is
// rejected: it must be written as an IPv4 network.
func isMappedPrefix(s string) bool {
	text, _, ok := strings.Cut(s, "/")
	return ok && strings.Contains(text, ":") && len(naiveAddr(text)) == 4
}

// isNearlyPrefix says whether s is an address and a length that it cannot have, which is rejected.
func isNearlyPrefix(s string) bool {
	text, length, ok := strings.Cut(s, "/")
	net, _ := naivePrefix(s)
	return ok && net == nil && len(naiveAddr(text)) > 0 && length != "" && strings.Trim(length, "0123456789") == ""
}

// isUnreplaced says whether s has a placeholder that would not be replaced, which is rejected.
func isUnreplaced(s string) bool {
	return strings.Contains(s, "{env.") || strings.Contains(s, "{file.")
}

// same says whether two overrides match the same keys.
func (k *overrideCase) same(a, b []string) bool {
	for i := range a {
		if k.naive.part(i, a[i]) != k.naive.part(i, b[i]) {
			return false
		}
	}
	return true
}

// allExact says whether an override matches a single key.
func (k *overrideCase) allExact(key []string) bool {
	for i, s := range key {
		if net, _ := naivePrefix(s); s == "*" || net != nil && !k.naive.mixed[i] {
			return false
		}
	}
	return true
}

// duplicate says whether two overrides match the same single key.
func (k *overrideCase) duplicate() bool {
	for i, a := range k.keys {
		for _, b := range k.keys[:i] {
			if k.allExact(a) && k.allExact(b) && k.same(a, b) {
				return true
			}
		}
	}
	return false
}

// check finds the override of the key and compares it with all that match.
func (k *overrideCase) check() {
	k.Helper()
	var x Index[int]
	h := NewHasher("s")
	duplicate := false
	for i, p := range k.list {
		_, twice, err := x.Add(p, h, i)
		if err != nil {
			k.Fatal(err)
		}
		duplicate = duplicate || twice
	}
	if duplicate != k.duplicate() {
		k.Fatalf("overrides %q: duplicate: %v, want %v", k.keys, duplicate, k.duplicate())
	} else if duplicate {
		return
	}
	at, ok := x.Find(&k.built, h.Hash(k.built.b))
	if !ok {
		at = -1
	}
	k.checkIf(&x, at)
	for i, key := range k.keys {
		exact := k.naive.naiveMatch(key, k.values)
		if i == at && exact == nil {
			k.Errorf("key %q: override %q, which does not match", k.values, key)
		}
		if exact == nil || i == at {
			continue
		}
		if at < 0 {
			k.Errorf("key %q: no override, want %q", k.values, key)
			continue
		}
		of := k.naive.naiveMatch(k.keys[at], k.values)
		if beats(exact, of) || i < at && slices.Equal(exact, of) {
			k.Errorf("key %q: override %q, want %q", k.values, k.keys[at], key)
		}
	}
}

// checkIf finds the override of the key without the one that was found, and compares it with that of
// an index that does not have it.
func (k *overrideCase) checkIf(x *Index[int], at int) {
	wanted := func(i int) bool { return at < 0 || !reflect.DeepEqual(k.list[i].parts, k.list[at].parts) }
	var without Index[int]
	h := NewHasher("s")
	for i, p := range k.list {
		if !wanted(i) {
			continue
		}
		if _, _, err := without.Add(p, h, i); err != nil {
			k.Fatal(err)
		}
	}
	key := h.Hash(k.built.b)
	got, ok := x.FindIf(&k.built, key, wanted)
	if want, is := without.Find(&k.built, key); got != want || ok != is {
		k.Errorf("key %q: override %d, found %v, want %d, %v of %q without %d", k.values, got, ok, want, is, k.keys, at)
	}
}
