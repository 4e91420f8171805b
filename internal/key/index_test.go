package key

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// indexOf returns an index of patterns, each with its number as its value, and the plan of
// their key.
func indexOf(t *testing.T, patterns ...string) (*Index[int], *Plan) {
	t.Helper()
	parts := make([]string, len(strings.Fields(patterns[0])))
	for i := range parts {
		parts[i] = "{http.request.header.A}"
	}
	plan, err := NewPlan(parts, func(s string) string { return s }, "", "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	x := new(Index[int])
	for i, s := range patterns {
		p, err := plan.Pattern(strings.Fields(s))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := x.Add(p, NewHasher("s"), i); err != nil {
			t.Fatal(err)
		}
	}
	return x, plan
}

// TestIndex finds the pattern of a key, and describes it.
func TestIndex(t *testing.T) {
	for _, c := range []struct {
		patterns  []string
		key, want string // want "": none
	}{
		{[]string{"* b", "a *"}, "a b", "* b"}, // as specific: the first
		{[]string{"a *", "* b"}, "a b", "a *"},
		{[]string{"a x", "* b"}, "a b", "* b"},
		{[]string{"10.0.0.0/8 x", "* b"}, "10.1.1.1 b", "* b"},
		{[]string{"10.0.0.0/8 b", "10.1.0.0/16 x"}, "10.1.1.1 b", "10.0.0.0/8 b"},
		{[]string{"0.0.0.0/0 b", "10.0.0.0/8 x", "10.1.0.0/16 x", "10.1.1.1 x"}, "10.1.1.1 b", "0.0.0.0/0 b"},
		{[]string{"10.0.0.0/8 *", "10.1.0.0/16 *"}, "10.1.1.1 b", "10.1.0.0/16 *"},
		{[]string{"10.0.0.0/8 a", "10.1.0.0/16 *"}, "10.1.1.1 a", "10.0.0.0/8 a"},
		{[]string{"a 10.0.0.0/8", "a 11.0.0.0/8"}, "a 10.1.1.1", "a 10.0.0.0/8"},
		{[]string{"a 10.0.0.0/8", "a 11.0.0.0/8"}, "a 11.1.1.1", "a 11.0.0.0/8"},
		{[]string{"a 10.0.0.0/8", "a 11.0.0.0/8"}, "a 12.1.1.1", ""},
		{[]string{"::/0 a", "0.0.0.0/0 a"}, "2001:db8::1 a", "::/0 a"},
		{[]string{"10.0.0.0/8", "10.0.0.0/8", "*"}, "10.1.1.1", "10.0.0.0/8"},
		{[]string{"10.0.0.0/8", "10.1.1.1", "*"}, "10.1.1.1", "10.1.1.1"},
		{[]string{"10.0.0.0/8", "*"}, "text", "*"},
		{[]string{"10.0.0.0/8"}, "text", ""},
	} {
		x, plan := indexOf(t, c.patterns...)
		parts := strings.Fields(c.key)
		k, err := plan.Named(parts)
		if err != nil {
			t.Fatal(err)
		}
		hash := NewHasher("s").Hash(k.Bytes())
		at, ok := x.Find(&k, hash)
		if want := slices.Index(c.patterns, c.want); ok != (want >= 0) || ok && at != want {
			t.Errorf("%q in %q: %d, found %v; want %q", c.key, c.patterns, at, ok, c.want)
		}
		if got := strings.Join(x.Describe(&k, hash, parts), " "); ok && got != c.want {
			t.Errorf("%q in %q: described as %q, want %q", c.key, c.patterns, got, c.want)
		}
		if n := testing.AllocsPerRun(10, func() { x.Find(&k, hash) }); n > 0 {
			t.Errorf("%q in %q: %v allocations", c.key, c.patterns, n)
		}
	}
}

// TestFindIf leaves out the patterns of a key one after the other, the most specific first.
func TestFindIf(t *testing.T) {
	for _, c := range []struct {
		key      string
		patterns []string // most of them match; the most specific first
		others   int      // the last of them, which do not match
	}{
		{"10.1.1.1", []string{"10.1.1.1", "10.1.1.0/24", "10.1.0.0/16", "10.0.0.0/9", "0.0.0.0/0", "*", "10.2.0.0/16"}, 1},
		{"2001:db8::1", []string{"2001:db8::/64", "2001:db8::/32", "::/0", "*", "10.0.0.0/8"}, 1},
		{"text", []string{"text", "*", "10.0.0.0/8"}, 1},
		{"10.1.1.1 b", []string{"10.1.1.1 b", "10.1.0.0/16 b", "10.0.0.0/8 b", "* b", "10.0.0.0/8 *", "* *", "* c"}, 1},
	} {
		x, plan := indexOf(t, c.patterns...)
		k, err := plan.Named(strings.Fields(c.key))
		if err != nil {
			t.Fatal(err)
		}
		hash, matching := NewHasher("s").Hash(k.Bytes()), len(c.patterns)-c.others
		for n := range matching + 1 {
			wanted := func(i int) bool { return i >= n }
			if at, ok := x.FindIf(&k, hash, wanted); ok != (n < matching) || ok && at != n {
				t.Errorf("%q in %q without the first %d: %d, found %v", c.key, c.patterns, n, at, ok)
			}
			if allocs := testing.AllocsPerRun(10, func() { x.FindIf(&k, hash, wanted) }); allocs > 0 {
				t.Errorf("%q in %q without the first %d: %v allocations", c.key, c.patterns, n, allocs)
			}
		}
		if _, ok := x.FindIf(new(Encoded), hash, func(int) bool { return false }); ok {
			t.Errorf("%q: found by its hash, although it is not wanted", c.key)
		}
	}
}

// TestIndexIsBounded adds more patterns than are tried one after the other: networks and single
// keys are not.
func TestIndexIsBounded(t *testing.T) {
	x, plan := indexOf(t, "a b")
	add := func(words ...string) error {
		p, err := plan.Pattern(words)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = x.Add(p, NewHasher("s"), 0)
		return err
	}
	for i := range MaxMixed {
		if err := add(fmt.Sprint(i), "*"); err != nil {
			t.Fatal(err)
		}
	}
	if err := add("10.0.0.0/8", "b"); err == nil {
		t.Error("a pattern more than the maximum was added")
	}
	if err := add("c", "d"); err != nil {
		t.Error(err)
	}
	x, plan = indexOf(t, "10.0.0.0/8")
	for i := range 2 * MaxMixed {
		if err := add(network(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNarrowPattern finds the patterns that match more than they say: with prefixes of 32
// and 64 bits.
func TestNarrowPattern(t *testing.T) {
	_, plan := indexOf(t, "*")
	for s, want := range map[string]bool{
		"10.0.0.1": false, "10.0.0.1/32": false, "10.0.0.0/8": false, "text": false, "*": false,
		"2001:db8::1": true, "2001:db8::/65": true, "2001:db8::/64": false, "2001:db8::/32": false,
	} {
		if p, err := plan.Pattern([]string{s}); err != nil || p.Narrow != want {
			t.Errorf("%s: narrow %v, want %v (%v)", s, p.Narrow, want, err)
		}
	}
}
