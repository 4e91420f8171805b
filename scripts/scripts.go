// Package scripts assembles the Lua that decides in Redis: one dispatcher and
// the judges of all algorithms that are registered with Caddy.
package scripts

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
)

//go:embed prelude.lua
var prelude string

//go:embed plain.lua
var plain string

//go:embed holds.lua
var holds string

//go:embed dispatch.lua
var dispatch string

// The judges are made when an ask needs them: each call of the script would make
// all of them anew.
const (
	loadBegin = "local judges = { false, false, false, false }\nlocal function load(code)\n  local judge\n"
	loadEnd   = "  judges[code] = judge\n  return judge\nend\n"
)

// Script is the assembled script and the numbers by which an ask names an
// algorithm in it.
type Script struct {
	Text  string // Lua, loaded by SCRIPT LOAD as it stands
	codes map[string]byte
}

// Code is the number of an algorithm's judge in the script.
func (s *Script) Code(a algorithms.Algorithm) byte { return s.codes[string(a.CaddyModule().ID)] }

// Decide returns the script of this program. It is the same text in every
// instance that was built from the same algorithms.
var Decide = sync.OnceValue(func() *Script {
	s := &Script{codes: make(map[string]byte)}
	var b strings.Builder
	b.WriteString(prelude)
	b.WriteString(loadBegin)
	chunks := make(map[string]byte)
	for _, m := range caddy.GetModules(algorithms.Namespace) { // sorted by name
		a, ok := m.New().(algorithms.Algorithm)
		if !ok {
			continue
		}
		code, written := chunks[a.Lua()]
		if !written {
			code = byte(len(chunks) + 1)
			chunks[a.Lua()] = code
			fmt.Fprintf(&b, "  if code == %d then judge = (function()\n%send)() end\n", code, a.Lua())
		}
		s.codes[string(m.ID)] = code
	}
	b.WriteString(loadEnd)
	b.WriteString(plain)
	b.WriteString(holds)
	b.WriteString(dispatch)
	s.Text = b.String()
	return s
})
