package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// source is what the syntax trees of one package declare.
type source struct {
	registered []*ast.CallExpr          // calls of caddy.RegisterModule
	modules    map[string]*ast.FuncDecl // CaddyModule, by the name of its receiver
	types      map[string]*ast.TypeSpec
	docs       map[string]string // comments of types
}

// sources parses the packages of all modules, without tests and programs. The documentation of
// Caddy's website reads each package apart.
func sources(t *testing.T, set *token.FileSet) map[string]*source {
	t.Helper()
	packages := make(map[string]*source)
	for _, path := range handwritten(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, filepath.Join(root, path), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" || strings.HasPrefix(path, "test/") {
			continue
		}
		dir := filepath.Dir(path)
		if packages[dir] == nil {
			packages[dir] = &source{modules: map[string]*ast.FuncDecl{}, types: map[string]*ast.TypeSpec{}, docs: map[string]string{}}
		}
		packages[dir].read(file)
	}
	return packages
}

func (s *source) read(file *ast.File) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			if f, ok := node.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "RegisterModule" {
				s.registered = append(s.registered, node)
			}
		case *ast.FuncDecl:
			if node.Recv != nil && node.Name.Name == "CaddyModule" {
				s.modules[nameOf(node.Recv.List[0].Type)] = node
			}
		case *ast.GenDecl:
			for _, spec := range node.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					s.types[spec.Name.Name] = spec
					s.docs[spec.Name.Name] = node.Doc.Text() + spec.Doc.Text()
				}
			}
		}
		return true
	})
}

func nameOf(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return nameOf(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// registeredType returns the name of the type in RegisterModule(T{}) and RegisterModule(new(T)).
// The scanner of Caddy's website understands no other form.
func registeredType(call *ast.CallExpr) string {
	if len(call.Args) != 1 {
		return ""
	}
	switch of := call.Args[0].(type) {
	case *ast.CompositeLit:
		return nameOf(of.Type)
	case *ast.CallExpr:
		if nameOf(of.Fun) == "new" && len(of.Args) == 1 {
			return nameOf(of.Args[0])
		}
	}
	return ""
}

// moduleID returns the ID in the result of CaddyModule if it is a string literal.
func moduleID(method *ast.FuncDecl) (id string) {
	ast.Inspect(method.Body, func(node ast.Node) bool {
		if field, ok := node.(*ast.KeyValueExpr); ok && nameOf(field.Key) == "ID" {
			if value, ok := field.Value.(*ast.BasicLit); ok {
				id, _ = strconv.Unquote(value.Value)
			}
		}
		return true
	})
	return id
}

// TestModulesCanBeDocumented holds what the scanner of Caddy's website needs, which finds the
// modules of a plugin in its syntax trees: the argument of RegisterModule, the ID of the module,
// and a doc comment at each type and field of its JSON. A comment behind a field is not shown.
func TestModulesCanBeDocumented(t *testing.T) {
	set, n := token.NewFileSet(), 0
	packages := sources(t, set)
	fields := configured{t: t, set: set, packages: packages, seen: map[string]bool{}}
	for dir, s := range packages {
		for _, call := range s.registered {
			n++
			where, name := set.Position(call.Pos()), registeredType(call)
			switch {
			case name == "":
				t.Errorf("%v: want caddy.RegisterModule(T{}) or caddy.RegisterModule(new(T))", where)
			case s.modules[name] == nil:
				t.Errorf("%v: %s has no method CaddyModule in %s", where, name, dir)
			case moduleID(s.modules[name]) == "":
				t.Errorf("%v: the ID of %s is no string literal", set.Position(s.modules[name].Pos()), name)
			case ast.IsExported(name) && s.docs[name] == "":
				t.Errorf("%v: %s has no comment", where, name)
			}
			fields.check(dir, name)
		}
	}
	if n < 17 || fields.n < 90 {
		t.Errorf("only %d modules and %d fields were checked", n, fields.n)
	}
}

// configured checks the fields of the types that a module's JSON is made of.
type configured struct {
	t        *testing.T
	set      *token.FileSet
	packages map[string]*source
	seen     map[string]bool // "<folder>.<type>"
	n        int
}

// check checks a type of the package in dir, and the types of this project that its fields have.
func (c *configured) check(dir, name string) {
	s := c.packages[dir]
	if s == nil || s.types[name] == nil || c.seen[dir+"."+name] {
		return
	}
	c.seen[dir+"."+name] = true
	of, ok := s.types[name].Type.(*ast.StructType)
	if !ok {
		c.follow(dir, s.types[name].Type)
		return
	}
	for _, field := range of.Fields.List {
		key, isJSON := jsonKey(field)
		if !isJSON && len(field.Names) > 0 {
			continue
		}
		if c.n++; isJSON && field.Doc == nil {
			c.t.Errorf("%v: %s.%s has no comment before it", c.set.Position(field.Pos()), name, key)
		}
		c.follow(dir, field.Type)
	}
}

// follow checks the types that are named in an expression.
func (c *configured) follow(dir string, of ast.Expr) {
	ast.Inspect(of, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr: // packages are named as their folders
			c.check(nameOf(node.X), node.Sel.Name)
			return false
		case *ast.Ident:
			c.check(dir, node.Name)
		}
		return true
	})
}

// jsonKey returns the key of a field in JSON.
func jsonKey(field *ast.Field) (key string, ok bool) {
	if field.Tag == nil {
		return "", false
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return "", false
	}
	value, ok := reflect.StructTag(tag).Lookup("json")
	key, _, _ = strings.Cut(value, ",")
	return key, ok && key != "-" && key != ""
}
