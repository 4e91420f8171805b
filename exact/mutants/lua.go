//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// mutatedLua is the environment variable that names the Lua file to take
// instead of the embedded one of the same name.
const mutatedLua = "DIANA_MUTANT"

// variables are where the product's code keeps its Lua, by package.
var variables = map[string]string{
	"algorithms": `"meter.lua": &meterLua, "fixed_window.lua": &fixedWindowLua, "sliding_window.lua": &slidingWindowLua, "sliding_log.lua": &slidingLogLua`,
	"scripts":    `"prelude.lua": &prelude, "holds.lua": &holds, "dispatch.lua": &dispatch`,
}

// looking is a file that is added to such a package.
const looking = `package %s

import (
	"os"
	"path/filepath"
)

func init() {
	path := os.Getenv(%q)
	v := map[string]*string{%s}[filepath.Base(path)]
	if v == nil {
		return
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) == *v {
		panic("no mutant at " + path)
	}
	*v = string(b)
}
`

// buildForLua builds the tests once for all mutants in Lua, with code that
// looks for the mutated file when it starts: linking takes longer than testing.
func (l *lab) buildForLua() (string, error) {
	dir := filepath.Join(l.dir, "lua")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	added := make(map[string]string)
	for pkg, vars := range variables {
		by := filepath.Join(dir, pkg+".go")
		if err := os.WriteFile(by, fmt.Appendf(nil, looking, pkg, mutatedLua, vars), 0o600); err != nil {
			return "", err
		}
		added[filepath.Join(pkg, "mutant.go")] = by
	}
	binary := filepath.Join(dir, stores.name)
	return binary, l.build(stores, dir, binary, added)
}
