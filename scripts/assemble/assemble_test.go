package assemble

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestInline inlines a chunk.
func TestInline(t *testing.T) {
	got, err := inline(`-- About it.
local unpack, pack = struct.unpack, struct.pack

return function(v, i, s, j, now, n, p)
  local L, i = unpack('<d', v, i)
  local ok, new = n <= L, ''
  if not ok then
    n = 0
  end
  return ok, new, i, j + 8
end
`)
	want := `-- About it.
local i, j, now, n, p = rule_i, rule_j, t, n, 0
if not a1 then a1, behind = unpack('<d', v, i) end
local L, i = a1, behind
local ok, new = n <= L, ''
if not ok then
  n = 0
end
rule_ok = ok
rule_state = new
rule_i = i
rule_j = j + 8
`
	if err != nil || got != want {
		t.Errorf("%v, got\n%s", err, got)
	}
}

// TestInlineForm checks that chunks of any other form are rejected.
func TestInlineForm(t *testing.T) {
	const head, args, end = "local unpack, pack = struct.unpack, struct.pack\n\nreturn function(v, i, s, j, t, n, p)\n", "  local L, i = unpack('<d', v, i)\n", "  return true, s, i, j\nend\n"
	if _, err := inline(head + args + "  local x = 1\n" + end); err != nil {
		t.Error(err)
	}
	for name, chunk := range map[string]string{
		"arguments later":          head + "  local x = 1\n" + end,
		"a return in the middle":   head + args + "  if s then return true, s, i, j end\n" + end,
		"a function inside":        head + args + "  local f = function() end\n" + end,
		"a call in the results":    head + args + "  local x = 1\n  return f(s), s, i, j\nend\n",
		"something before it":      "local L = 1\n" + strings.Replace(head, "\n\n", "\nlocal L = 1\n", 1) + args + end,
		"something behind it":      head + args + end + "local L = 1\n",
		"names of other variables": strings.Replace(head, "local unpack, pack", "local u, p", 1) + args + end,
	} {
		if text, err := inline(chunk); err == nil {
			t.Errorf("%s: inlined, want an error:\n%s", name, text)
		}
	}
}

// TestMissingSource checks that a missing file is an error.
func TestMissingSource(t *testing.T) {
	if _, err := Script(fstest.MapFS{"scripts/lua/main.lua": {Data: []byte("-- include read.lua\n")}}); err == nil {
		t.Error("no error for missing files")
	}
}
