//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// function is a function of the product, with the file in which it is.
type function struct {
	*ast.FuncDecl
	src *source
}

// source is a Go file of the product with its positions.
type source struct {
	file string // relative to the root of the repository
	text string
	set  *token.FileSet
	tree *ast.File
}

func (s *source) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *source) cut(from, to token.Pos) string { return s.text[s.offset(from):s.offset(to)] }

// functions parses the packages that mutants change and returns their functions by package, receiver
// and name, such as memory.Table.Reset. A mutant names its function, so that neither a line nor a file
// that moves concerns it.
func functions(root string) (map[string][]function, error) {
	all := make(map[string][]function)
	for dir := range packages {
		files, err := fs.Glob(os.DirFS(root), path.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			b, err := os.ReadFile(filepath.Join(root, file)) //nolint:gosec // the code to change
			if err != nil {
				return nil, err
			}
			src := &source{file: file, text: string(b), set: token.NewFileSet()}
			if src.tree, err = parser.ParseFile(src.set, file, b, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			for _, d := range src.tree.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					name := path.Base(dir) + "." + src.nameOf(f)
					all[name] = append(all[name], function{f, src})
				}
			}
		}
	}
	return all, nil
}

// nameOf returns the name of a function, for a method behind that of its receiver's type.
func (s *source) nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of, _, _ := strings.Cut(strings.TrimPrefix(s.cut(f.Recv.List[0].Type.Pos(), f.Recv.List[0].Type.End()), "*"), "[")
	return of + "." + f.Name.Name
}

// lexeme is a token of Go with where it stands in its text.
type lexeme struct {
	token    string
	from, to int
}

// lexemes splits Go into tokens, without comments and the semicolons of line ends: what layout changes
// is no difference.
func lexemes(text string) []lexeme {
	set := token.NewFileSet()
	var s scanner.Scanner
	s.Init(set.AddFile("", set.Base(), len(text)), []byte(text), func(token.Position, string) {}, 0)
	var all []lexeme
	for {
		pos, t, literal := s.Scan()
		if t == token.EOF {
			return all
		}
		if t == token.SEMICOLON && literal == "\n" {
			continue
		}
		if literal == "" {
			literal = t.String()
		}
		from := set.Position(pos).Offset
		all = append(all, lexeme{literal, from, from + len(literal)})
	}
}

// replaced returns the body of a function with the one place where it has the tokens of old replaced.
func (f function) replaced(m mutant) (string, error) {
	body := f.src.cut(f.Body.Pos(), f.Body.End())
	have, want := lexemes(body), lexemes(m.old)
	at, n := -1, 0
	for i := 0; i+len(want) <= len(have); i++ {
		if matches(have[i:], want) {
			at = i
			n++
		}
	}
	if n != 1 {
		return "", fmt.Errorf("mutant %s: its text occurs %d times in %s, want once:\n%s", m.name, n, m.in, m.old)
	}
	return body[:have[at].from] + m.new + body[have[at+len(want)-1].to:], nil
}

func matches(have, want []lexeme) bool {
	for i, w := range want {
		if have[i].token != w.token {
			return false
		}
	}
	return len(want) > 0
}
