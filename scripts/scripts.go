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
	new(algorithms.FixedWindow), new(algorithms.GCRA), new(algorithms.SlidingLog), new(algorithms.SlidingWindow), new(algorithms.Calendar),
}

// thirdParty is the line of decide.lua before which functions are added.
const thirdParty = "  -- The functions of third-party algorithms are added here.\n"

// Script is the script of a program and the codes of the algorithms in it.
type Script struct {
	// Text is the script with the built-in algorithms, as SCRIPT LOAD takes it.
	Text string

	codes      map[string]byte // by module ID
	thirdParty map[byte]function
}

// function is the decision function of a third-party algorithm.
type function struct{ name, lua string }

// Code returns the code by which an entry names the algorithm.
func (s *Script) Code(a algorithms.Algorithm) byte { return s.codes[string(a.CaddyModule().ID)] }

// ThirdParty returns the codes of third-party algorithms among the given ones, ascending and
// each once, as [Script.Add] takes them.
func (s *Script) ThirdParty(codes []byte) string {
	var all []byte
	for _, c := range codes {
		if _, ok := s.thirdParty[c]; ok {
			all = append(all, c)
		}
	}
	slices.Sort(all)
	return string(slices.Compact(all))
}

// linesAround is how many lines Add writes for a function of one line.
const linesAround = 5

// Add returns a script with the functions of third-party algorithms added. Only scripts
// for rules that use them have them: an algorithm that does not compile takes no other
// rule away.
func (s *Script) Add(text, thirdPartyCodes string) string {
	var functions strings.Builder
	for i := range len(thirdPartyCodes) {
		f := s.thirdParty[thirdPartyCodes[i]]
		fmt.Fprintf(&functions, "  if code == %d then -- %s\n    return (function()\n%s\n    end)()\n  end\n", thirdPartyCodes[i], f.name, f.lua)
	}
	return strings.Replace(text, thirdParty, functions.String()+thirdParty, 1)
}

// Names returns the names of the third-party algorithms with these codes. If one of them
// contains the line of a script to which they were added, it is that alone.
func (s *Script) Names(text, thirdPartyCodes string, line int) (names []string) {
	before, _, _ := strings.Cut(text, thirdParty)
	end := strings.Count(before, "\n") + 1 // the line after the functions
	for i := len(thirdPartyCodes) - 1; i >= 0; i-- {
		f := s.thirdParty[thirdPartyCodes[i]]
		first := end - strings.Count(f.lua, "\n") - linesAround
		if line >= first && line < end {
			return []string{f.name}
		}
		names, end = append(names, f.name), first
	}
	slices.Sort(names)
	return names
}

// Decide returns the script of this program. Programs with the same algorithms have
// the same codes.
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
	s := &Script{Text: decide, codes: make(map[string]byte), thirdParty: make(map[byte]function)}
	var chunks []string
	for _, a := range builtIn {
		chunks = append(chunks, a.Lua())
	}
	for _, a := range all {
		id, chunk := a.CaddyModule().ID, a.Lua()
		i := slices.Index(chunks, chunk)
		if i < 0 {
			i = len(chunks)
			chunks = append(chunks, chunk)
			s.thirdParty[byte(i+1)] = function{id.Name(), chunk}
		}
		s.codes[string(id)] = byte(i + 1)
	}
	return s
}
