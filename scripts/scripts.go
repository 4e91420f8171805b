// Package scripts assembles the Lua that decides in Redis: one dispatcher and
// the judges of all algorithms that are registered with Caddy.
package scripts

import (
	_ "embed"
	"fmt"
	"strconv"
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
	var judges, quick strings.Builder
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
			fmt.Fprintf(&judges, "if not judge and code == %d then\n%send\n", code, judge(a.Lua()))
			if q, ok := a.(algorithms.Quick); ok {
				quick.WriteString(strings.ReplaceAll(q.QuickLua(), "CODE", strconv.Itoa(int(code))))
			}
		}
		s.codes[string(m.ID)] = code
	}
	judges.WriteString("judges[code] = judge\n")
	inserts := strings.NewReplacer(
		"insert read\n", read, "insert write\n", write, "insert judge\n", judges.String(), "insert quick\n", quick.String(),
	)
	s.Text = inserts.Replace(prelude + plain + holds + dispatch)
	return s
})

// judge is a chunk that keeps the function which it would return, if that is
// how it ends, so that it need not be a function itself.
func judge(chunk string) string {
	if before, function, ok := strings.Cut(chunk, "\nreturn function("); ok && strings.HasSuffix(function, "\nend\n") {
		return before + "\njudge = function(" + function
	}
	return "judge = (function()\n" + chunk + "end)()\n"
}
