package lua

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// run calls a function of struct, and returns its results. err is what it raised.
func run(m *Machine, name string, args ...Value) (out []Value, err error) {
	fn := m.Globals.Field("struct").Table().Field(name)
	m.top, m.site = 0, nil
	err = m.protect(func() {
		for _, a := range args {
			m.push(a)
		}
		n := m.call(fn, 0, len(args), &site{})
		out = append(out, m.stack[:n]...)
	})
	return out, err
}

// FuzzStruct unpacks bytes in any format. What is unpacked is packed to the same bytes, but
// for padding and for numbers that a double does not hold. Other failures than Lua's
// panic.
func FuzzStruct(f *testing.F) {
	f.Add("<dddd", strings.Repeat("\x00\x01\x02\x03\x04\x05\x06\x40", 4), 1)
	f.Add("<BBxBBxBdI4I4B", strings.Repeat("\x07", 40), 3)
	f.Add(">!8Bi4hc3s", "\x01\x00\x00\x00\x02\x02\x02\x02\x03\x03abcdef\x00", 1)
	f.Add("<c8d", "instance\x00\x00\x00\x00\x00\x00\xf0\x3f", 1)
	f.Add("Bc0", "\x03abc", 1)
	f.Fuzz(func(t *testing.T, format, data string, pos int) {
		m := New()
		out, err := run(m, "unpack", Str(format), Str(data), Num(float64(pos)))
		if err != nil {
			if raised := new(Error); !errors.As(err, &raised) || raised.Error() == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		end := int(out[len(out)-1].Num())
		if pos > 0 && pos <= len(data) && (end < 1 || end > len(data)+1) {
			t.Fatalf("the position behind is %d of %d", end, len(data))
		}
		if pos != 1 || strings.ContainsAny(format, "!xfiIlLTs0") || strings.ContainsRune(cut(format), 'c') && strings.Contains(format, "c0") {
			return
		}
		for _, v := range out {
			if v.kind == Number && math.IsNaN(v.Num()) {
				return
			}
		}
		again, err := run(m, "pack", append([]Value{Str(format)}, out[:len(out)-1]...)...)
		if err != nil || again[0].Text() != data[:end-1] {
			t.Fatalf("%q unpacked and packed: %v, %v; want %q", format, again, err, data[:end-1])
		}
	})
}

// TestNumbers formats and parses numbers as C does.
func TestNumbers(t *testing.T) {
	for _, n := range []struct {
		f        float64
		lua, arg string
	}{
		{0, "0", "0"},
		{math.Copysign(0, -1), "-0", "-0"},
		{1e14, "1e+14", "100000000000000"},
		{99999999999999, "99999999999999", "99999999999999"},
		{1e16, "1e+16", "10000000000000000"},
		{1e17, "1e+17", "1e+17"},
		{0.1, "0.1", "0.10000000000000001"},
		{-1e-5, "-1e-05", "-1.0000000000000001e-05"},
		{1.5, "1.5", "1.5"},
		{math.Inf(-1), "-inf", "-inf"},
	} {
		if got := formatNumber(n.f, 14); got != n.lua {
			t.Errorf("%v: %q, want %q", n.f, got, n.lua)
		}
		if got := FormatNumber(n.f); got != n.arg {
			t.Errorf("%v: %q, want %q", n.f, got, n.arg)
		}
	}
	for text, want := range map[string]float64{"1": 1, "\t1e2\n": 100, "0x1F": 31, "-0x10": -16, ".5": 0.5, "5.": 5, "1\x00x": 1} {
		if got, is := parseNumber(text); !is || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, is, want)
		}
	}
	for _, text := range []string{"", " ", "x", "1x", "1 2", "1_000", "0x", "--1", "+-1"} {
		if got, is := parseNumber(text); is {
			t.Errorf("%q: %v", text, got)
		}
	}
}
