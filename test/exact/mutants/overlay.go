//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing/fstest"

	"github.com/dianalimiter/diana/scripts/assemble"
)

// mutantVariable is the environment variable that selects the active mutant: by name
// for Go, by the path of its file for Lua. Linking takes longer than testing, so all
// mutants are built into one binary.
const mutantVariable = "DIANA_MUTANT"

// packages are the packages that mutants change. The value initializes a map of the
// embedded files that a mutant in Lua replaces at run time.
var packages = map[string]string{
	"algorithms":             "",
	"config":                 "",
	"internal/key":           "",
	"internal/limiter":       "",
	"internal/metrics":       "",
	"scripts":                `"decide.lua": &decide`,
	"stores":                 "",
	"internal/stores/memory": "",
	"internal/stores/outage": "",
	"internal/stores/redis":  "",
	"rules":                  "",
	"internal/adaptive":      "",
	"internal/body":          "",
	"internal/follow":        "",
	"internal/lib/subscribe": "",
	"rules/sources":          "",
}

// mutationFile is the file added to each of these packages.
const mutationFile = `package %s

import (
	"os"
	"path/filepath"
)

var mutation = os.Getenv(%q)

func init() {
	v := map[string]*string{%s}[filepath.Base(mutation)]
	if v == nil {
		return
	}
	b, err := os.ReadFile(mutation)
	if err != nil || string(b) == *v {
		panic("no mutant at " + mutation)
	}
	*v = string(b)
}
`

// overlay writes all mutants to temporary files and returns the overlay: for each
// replaced file of the work tree, its replacement.
func (l *lab) overlay(all []mutant) (map[string]string, error) {
	replace := make(map[string]string)
	for pkg, vars := range packages {
		by := filepath.Join(l.dir, strings.ReplaceAll(pkg, "/", "_")+".go")
		if err := os.WriteFile(by, fmt.Appendf(nil, mutationFile, filepath.Base(pkg), mutantVariable, vars), 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(l.root, pkg, "mutation.go")] = by
	}
	perFile := make(map[*source][]mutant)
	for _, m := range all {
		if !m.isLua() {
			f, err := l.function(m)
			if err != nil {
				return nil, err
			}
			perFile[f.src] = append(perFile[f.src], m)
			continue
		}
		changed, err := l.applyLua(m)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(l.luaFile(m)), 0o700); err != nil {
			return nil, err
		}
		script, err := assemble.Script(mutated{os.DirFS(l.root), m.in, changed})
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %w", m.name, err)
		}
		if err := os.WriteFile(l.luaFile(m), []byte(script), 0o600); err != nil {
			return nil, err
		}
	}
	for src, ms := range perFile {
		text, err := l.addMutants(src, ms)
		if err != nil {
			return nil, err
		}
		by := filepath.Join(l.dir, strings.ReplaceAll(src.file, "/", "_"))
		if err := os.WriteFile(by, []byte(text), 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(l.root, src.file)] = by
	}
	return replace, nil
}

// luaFile returns the path of the script with the mutant.
func (l *lab) luaFile(m mutant) string { return filepath.Join(l.dir, m.name, "decide.lua") }

// mutated is a file system in which one file is replaced.
type mutated struct {
	fs.FS
	file, text string
}

// Open implements [fs.FS].
func (m mutated) Open(name string) (fs.File, error) {
	if name == m.file {
		return fstest.MapFS{name: {Data: []byte(m.text)}}.Open(name)
	}
	return m.FS.Open(name)
}

// addMutants returns a Go file in which each mutant is a copy of the function that it
// changes. The original function first calls the copy of the active mutant, if any.
func (l *lab) addMutants(src *source, ms []mutant) (string, error) {
	calls := make(map[int]string) // by offset
	var copies strings.Builder
	for _, m := range ms {
		f, err := l.function(m)
		if err != nil {
			return "", err
		}
		body, err := f.replaced(m)
		if err != nil {
			return "", err
		}
		copied := f.Name.Name + "_" + strings.ReplaceAll(m.name, "-", "_")
		calls[src.offset(f.Body.Lbrace)+1] += src.call(f.FuncDecl, m.name, copied)
		fmt.Fprintf(&copies, "\nfunc %s %s%s %s\n", src.receiver(f.FuncDecl), copied, src.cut(f.Type.Params.Pos(), f.Type.End()), body)
	}
	var out strings.Builder
	for i := range len(src.text) {
		out.WriteString(calls[i])
		out.WriteByte(src.text[i])
	}
	return out.String() + copies.String(), nil
}

func (s *source) receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	return s.cut(f.Recv.Pos(), f.Recv.End())
}

// call returns the statement that calls a mutant's copy of f if the mutant is active.
func (s *source) call(f *ast.FuncDecl, name, copied string) string {
	if f.Recv != nil {
		copied = f.Recv.List[0].Names[0].Name + "." + copied
	}
	var args []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			arg := n.Name
			if arg == "_" { // unused by the copy, too
				arg = "*new(" + s.cut(p.Type.Pos(), p.Type.End()) + ")"
			}
			if _, ok := p.Type.(*ast.Ellipsis); ok {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := copied + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results == nil {
		return fmt.Sprintf("if mutation == %q { %s; return };", name, call)
	}
	return fmt.Sprintf("if mutation == %q { return %s };", name, call)
}
