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

//go:embed holds.lua
var holds string

//go:embed dispatch.lua
var dispatch string

// Script is the assembled script and the numbers by which an ask names an
// algorithm in it.
type Script struct {
	Text  string
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
			fmt.Fprintf(&b, "judges[%d] = (function()\n%send)()\n", code, a.Lua())
		}
		s.codes[string(m.ID)] = code
	}
	b.WriteString(holds)
	b.WriteString(dispatch)
	s.Text = b.String()
	return s
})
