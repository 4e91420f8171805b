package test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// longestFile is how long a file may be without a reason in docs/architecture.md.
const longestFile = 500

// handwritten are the files of all modules that somebody has written, and reads.
func handwritten(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		path = strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || slices.Contains([]string{"bin", "dist", "internal/page/uplot"}, path)):
			return filepath.SkipDir
		case slices.Contains([]string{".go", ".lua", ".md", ".js", ".html", ".css", ".yml", ".yaml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestNoFileIsTooLong: a file is one subject, and a long one says why it is long.
func TestNoFileIsTooLong(t *testing.T) {
	reasons := textOf(t, "docs/architecture.md")
	for _, file := range handwritten(t) {
		n := bytes.Count([]byte(textOf(t, file)), []byte("\n"))
		if n > longestFile && !strings.Contains(reasons, "`"+file+"`") {
			t.Errorf("%s has %d lines: want at most %d, or a reason in docs/architecture.md", file, n, longestFile)
		}
	}
}

// TestExportedNamesAreDocumented looks at what the linter does not: the members
// of exported structs and interfaces. A comment before several names in one
// declaration is for all of them.
func TestExportedNamesAreDocumented(t *testing.T) {
	set, n := token.NewFileSet(), 0
	for _, path := range handwritten(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, filepath.Join(root, path), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			for _, member := range members(spec.Type) {
				for _, name := range member.Names {
					if !name.IsExported() {
						continue
					}
					if n++; member.Doc == nil && member.Comment == nil {
						t.Errorf("%v: %s.%s has no comment", set.Position(name.Pos()), spec.Name, name)
					}
				}
			}
			return true
		})
	}
	if n < 200 {
		t.Errorf("only %d names were looked at", n)
	}
}

func members(of ast.Expr) []*ast.Field {
	switch of := of.(type) {
	case *ast.StructType:
		return of.Fields.List
	case *ast.InterfaceType:
		return of.Methods.List
	}
	return nil
}
