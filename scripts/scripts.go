// Package scripts holds the Lua script that makes all decisions in Redis:
// decide.lua, to which the functions of third-party algorithms are added.
package scripts

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/dianalimiter/diana/algorithms"
)

//go:generate go run generate.go

//go:embed decide.lua
var decide string

// builtIn lists one algorithm for each decision function in decide.lua, in the
// order of their codes.
var builtIn = []algorithms.Algorithm{
	new(algorithms.FixedWindow), new(algorithms.GCRA), new(algorithms.SlidingLog), new(algorithms.SlidingWindow),
}

// thirdParty is the line of decide.lua before which functions are added.
const thirdParty = "  -- The functions of third-party algorithms are added here.\n"

// Script is the script of a program and the codes of the algorithms in it.
type Script struct {
	Text  string // Lua, as SCRIPT LOAD takes it
	codes map[string]byte
}

// Code returns the code by which an entry names the algorithm.
func (s *Script) Code(a algorithms.Algorithm) byte { return s.codes[string(a.CaddyModule().ID)] }

// Decide returns the script of this program. Programs with the same algorithms have
// the same script.
var Decide = sync.OnceValue(func() *Script {
	var all []algorithms.Algorithm
	for _, m := range caddy.GetModules(algorithms.Namespace) { // sorted by ID
		if a, ok := m.New().(algorithms.Algorithm); ok {
			all = append(all, a)
		}
	}
	return newScript(all)
})

// newScript returns the script of these algorithms. Algorithms with the same Lua
// share a function.
func newScript(all []algorithms.Algorithm) *Script {
	s := &Script{codes: make(map[string]byte)}
	var chunks []string
	for _, a := range builtIn {
		chunks = append(chunks, a.Lua())
	}
	var functions strings.Builder
	for _, a := range all {
		id, chunk := a.CaddyModule().ID, a.Lua()
		i := slices.Index(chunks, chunk)
		if i < 0 {
			i = len(chunks)
			chunks = append(chunks, chunk)
			fmt.Fprintf(&functions, "  if code == %d then -- %s\n    return (function()\n%s\n    end)()\n  end\n", i+1, id.Name(), chunk)
		}
		s.codes[string(id)] = byte(i + 1)
	}
	s.Text = strings.Replace(decide, thirdParty, functions.String()+thirdParty, 1)
	return s
}
