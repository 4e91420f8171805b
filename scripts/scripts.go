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

//go:embed read.lua
var read string

//go:embed write.lua
var write string

//go:embed plain.lua
var plain string

//go:embed run.lua
var run string

//go:embed several.lua
var several string

//go:embed answer.lua
var answer string

//go:embed holds.lua
var holds string

//go:embed dispatch.lua
var dispatch string

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
	var lone, judges, makers strings.Builder
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
			j := newJudge(a.Lua(), code)
			fmt.Fprintf(&lone, "if code == %d then\n%selse", code, j.lone())
			fmt.Fprintf(&judges, "if code == %d then\n%selse", code, j.oneOfSeveral())
			fmt.Fprintf(&makers, "if code == %d then\n%send\n", code, j.function())
		}
		s.codes[string(m.ID)] = code
	}
	const none = " error('no algorithm ' .. code) end\n"
	s.Text = insert(prelude+plain+holds+dispatch,
		"lone", lone.String()+none,
		"several", insert(run, "judge", insert(several, "judges", judges.String()+none)),
		"judge function", makers.String()+"return judges[code]\n")
	s.Text = insert(s.Text, "read", read, "write", write, "answer", answer)
	return s
})

// insert puts texts where a line says so by their names.
func insert(text string, namesAndTexts ...string) string {
	for i := 0; i < len(namesAndTexts); i += 2 {
		text = strings.ReplaceAll(text, "insert "+namesAndTexts[i]+"\n", namesAndTexts[i+1]) //nolint:gosec // they come in pairs
	}
	return text
}
