package scripts

import (
	"testing"

	"github.com/dianalimiter/diana/algorithms"
)

// TestInLine sees which chunks are put in line: what returns in its middle, or
// makes a function, must be called.
func TestInLine(t *testing.T) {
	const head, end = "local unpack, pack = struct.unpack, struct.pack\n\nreturn function(v, i, s, j, t, n, p)\n", "  return true, '', i, j\nend\n"
	for _, c := range []struct {
		name, chunk       string
		inline, arguments bool
	}{
		{"gcra", new(algorithms.GCRA).Lua(), true, true},
		{"fixed_window", new(algorithms.FixedWindow).Lua(), true, true},
		{"sliding_window", new(algorithms.SlidingWindow).Lua(), true, true},
		{"sliding_log, which has functions of its own", new(algorithms.SlidingLog).Lua(), false, false},
		{"arguments later", head + "  local L\n  L, i = unpack('<d', v, i)\n" + end, true, false},
		{"arguments of another kind", head + "  local L, i = unpack('<I4', v, i)\n" + end, true, false},
		{"a word in a comment", head + "  -- return at once\n" + end, true, false},
		{"a return in the middle", head + "  if s then return true, s, i, j end\n" + end, false, false},
		{"a function inside", head + "  local f = function() end\n" + end, false, false},
		{"something before it", "local L = 1\n" + head + end, false, false},
		{"something behind it", head + end + "local L = 1\n", false, false},
	} {
		j := newJudge(c.chunk, 1)
		if j.inline != c.inline || (j.arguments != "") != c.arguments {
			t.Errorf("%s: in line %v, arguments %q", c.name, j.inline, j.arguments)
		}
	}
}

// TestAssign keeps the meaning of an assignment, whatever is assigned.
func TestAssign(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"x, y", "a = x\nb = y\nc = nil"},
		{"x, y + 1, nil", "a = x\nb = y + 1\nc = nil"},
		{"x, max(y, 1)", "a, b, c = x, max(y, 1)"},
		{"x, ', '", "a, b, c = x, ', '"},
	} {
		if got := assign("a, b, c", c.values); got != c.want {
			t.Errorf("%s: %q, want %q", c.values, got, c.want)
		}
	}
}
