package scripts

import (
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
	"github.com/dianalimiter/diana/scripts/assemble"
)

// TestDecideIsFresh checks that decide.lua is what go generate writes.
func TestDecideIsFresh(t *testing.T) {
	want, err := assemble.Script(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	if decide != want {
		t.Error("decide.lua is not what its sources generate: run go generate ./scripts")
	}
}

// TestCodes checks that the code of each algorithm is that of its function in
// decide.lua.
func TestCodes(t *testing.T) {
	_, load, _ := strings.Cut(decide, "local function load(code)\n")
	for code, a := range []algorithms.Algorithm{
		1: new(algorithms.FixedWindow), 2: new(algorithms.GCRA), 3: new(algorithms.SlidingLog), 4: new(algorithms.SlidingWindow), 5: new(algorithms.Calendar),
	} {
		if a == nil {
			continue
		}
		_, text, _ := strings.Cut(load, "  if code == "+string(rune('0'+code))+" then -- ")
		text, _, _ = strings.Cut(text, "\n    end)()\n")
		_, text, _ = strings.Cut(text, "\n    return (function()\n")
		if got := strings.ReplaceAll("\n"+text+"\n", "\n      ", "\n")[1:]; got != a.Lua() || Decide().Code(a) != byte(code) {
			t.Errorf("code %d: %s has code %d, and the function is\n%s", code, a.CaddyModule().ID, Decide().Code(a), got)
		}
	}
	for _, a := range []algorithms.Algorithm{new(algorithms.TokenBucket), new(algorithms.LeakyBucket)} {
		if got, want := Decide().Code(a), Decide().Code(new(algorithms.GCRA)); got != want {
			t.Errorf("%s has code %d, want that of gcra, %d", a.CaddyModule().ID, got, want)
		}
	}
}

// TestBuiltInScript checks that a program without third-party algorithms runs the
// unchanged decide.lua.
func TestBuiltInScript(t *testing.T) {
	if Decide().Text != decide {
		t.Error("the script is not decide.lua")
	}
}

// other is an algorithm of another module.
type other struct {
	algorithms.Algorithm
	name caddy.ModuleID
	lua  string
}

func (o other) CaddyModule() caddy.ModuleInfo { return caddy.ModuleInfo{ID: o.name} }
func (o other) Lua() string                   { return o.lua }

// TestThirdPartyAlgorithms checks that functions are added and nothing else is
// changed, and that algorithms with the same Lua share a function.
func TestThirdPartyAlgorithms(t *testing.T) {
	const long = "return [[\n\n two\n]]" // with a long string, which must not be indented
	a := other{name: "x.a", lua: long}
	b := other{name: "x.b", lua: "return b -- no line end"}
	c := other{name: "x.c", lua: long}
	d := other{name: "x.d", lua: new(algorithms.GCRA).Lua()}
	s := newScript([]algorithms.Algorithm{a, b, c, d, new(algorithms.SlidingWindow)})
	for want, a := range map[algorithms.Algorithm]byte{a: 6, b: 7, c: 6, d: 2, new(algorithms.SlidingWindow): 4} {
		if got := s.Code(want); got != a {
			t.Errorf("%s has code %d, want %d", want.CaddyModule().ID, got, a)
		}
	}
	const added = `  if code == 6 then -- a
    return (function()
` + long + `
    end)()
  end
  if code == 7 then -- b
    return (function()
return b -- no line end
    end)()
  end
`
	codes := s.ThirdParty([]byte{7, 2, 6, 1, 7, 4})
	text := s.Add(s.Text, codes)
	if codes != "\x06\x07" || !strings.Contains(text, added+thirdParty) || strings.Replace(text, added, "", 1) != decide || s.Text != decide {
		t.Errorf("codes %q: want decide.lua and\n%s", codes, added)
	}
	if one := s.Add(s.Text, "\x07"); strings.Contains(one, "\n two\n") || !strings.Contains(one, "return b") {
		t.Error("a script for one algorithm has another, or not that one")
	}
	if s.ThirdParty([]byte{1, 2, 3, 4, 5}) != "" || s.Add(s.Text, "") != decide {
		t.Error("built-in algorithms need more than decide.lua")
	}
	before, _, _ := strings.Cut(text, added)
	at := strings.Count(before, "\n") + 1
	for line, want := range map[int]string{at - 1: "a b", at: "a", at + 2: "a", at + 7: "a", at + 8: "b", at + 10: "b", at + 12: "b", at + 13: "a b"} {
		if got := strings.Join(s.Names(text, codes, line), " "); got != want {
			t.Errorf("line %d: %s, want %s", line-at, got, want)
		}
	}
}
