package assemble

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestInline inlines a chunk.
func TestInline(t *testing.T) {
	d, err := parse(`-- About it.
local unpack, pack = struct.unpack, struct.pack

return function(v, i, s, j, now, n, p)
  local L, i = unpack('<d', v, i)
  local ok, new, reset, stepped = n <= L, '', 0, false
  if s then
    local u = unpack('<d', s, j)
    if not p then
      n = u
    elseif u < 0 then
      ok = false
    end
  end
  return ok, new, i, j + 8, reset, stepped
end
`)
	got := d.inline()
	want := `-- About it.
local i, j, now, n, p = rule_i, rule_j, t, n, 0
if not a1 then a1, behind = unpack('<d', v, i) end
local L, i = a1, behind
local ok, new, reset, stepped = n <= L, '', 0, false
if s then
  local u = unpack('<d', s, j)
  if not p then
    n = u
  elseif u < 0 then
    ok = false
  end
end
rule_ok = ok
rule_state = new
rule_i = i
rule_j = j + 8
rule_reset = reset
rule_stepped = stepped
`
	if err != nil || got != want {
		t.Errorf("%v, got\n%s", err, got)
	}
	got = d.loop("repeat\n  local exp\n  -- include algorithm\nuntil true\n")
	want = `local from, head, j, p, turn, expires = '8', '', 9, 0, nil, nil
local L = unpack('<d', v, i)
repeat
  local exp
  local ok, new, reset, stepped = n <= L, '', 0, false
  if s then
    local expires, u = unpack('<dd', s)
    exp = expires
    if u < 0 then
      ok = false
    end
  end
until true
`
	if got != want {
		t.Errorf("the loop is\n%s", got)
	}
}

// TestInlineForm checks that chunks of any other form are rejected.
func TestInlineForm(t *testing.T) {
	const head, args, end = "local unpack, pack = struct.unpack, struct.pack\n\nreturn function(v, i, s, j, t, n, p)\n", "  local L, i = unpack('<d', v, i)\n", "  local ok, new, reset, stepped = true, s, 0, false\n  return ok, new, i, j + 8, reset, stepped\nend\n"
	if _, err := parse(head + args + "  local x = 1\n" + end); err != nil {
		t.Error(err)
	}
	for name, chunk := range map[string]string{
		"arguments later":          head + "  local x = 1\n" + end,
		"a return in the middle":   head + args + "  if s then return true, s, i, j end\n" + end,
		"a function inside":        head + args + "  local f = function() end\n" + end,
		"a call in the results":    strings.Replace(head+args+end, "reset, stepped\n", "f(s), stepped\n", 1),
		"results of other names":   strings.ReplaceAll(head+args+end, "reset", "due"),
		"something before it":      "local L = 1\n" + strings.Replace(head, "\n\n", "\nlocal L = 1\n", 1) + args + end,
		"something behind it":      head + args + end + "local L = 1\n",
		"names of other variables": strings.Replace(head, "local unpack, pack", "local u, p", 1) + args + end,
	} {
		if _, err := parse(chunk); err == nil {
			t.Errorf("%s: parsed, want an error:\n%s", name, chunk)
		}
	}
}

// TestMissingSource checks that a missing file is an error.
func TestMissingSource(t *testing.T) {
	if _, err := Script(fstest.MapFS{"scripts/lua/main.lua": {Data: []byte("-- include read.lua\n")}}); err == nil {
		t.Error("no error for missing files")
	}
}
