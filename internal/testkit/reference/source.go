package reference

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// field is an exported field of a type with a JSON name.
type field struct {
	name string // in JSON
	typ  string // in words
	doc  string // the comment, on one line
	def  string // what the comment says after "Default:", or "required"

	expr     ast.Expr // the type as it is written
	optional bool     // whether JSON leaves it out
}

// source are the types of some packages, by <package>.<name>.
type source struct {
	fields   map[string][]field
	embedded map[string][]ast.Expr
	docs     map[string]string
}

// readSource reads the comments and the types of packages below root.
func readSource(root string, dirs ...string) (*source, error) {
	s := &source{fields: make(map[string][]field), embedded: make(map[string][]ast.Expr), docs: make(map[string]string)}
	for _, dir := range dirs {
		files, err := parser.ParseDir(token.NewFileSet(), filepath.Join(root, dir), //nolint:staticcheck // build tags do not matter here
			func(i fs.FileInfo) bool { return !strings.HasSuffix(i.Name(), "_test.go") }, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for name, p := range files {
			for _, f := range p.Files {
				s.readFile(name, f)
			}
		}
	}
	return s, nil
}

func (s *source) readFile(pkg string, f *ast.File) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		for _, spec := range g.Specs {
			t := spec.(*ast.TypeSpec)
			name := pkg + "." + t.Name.Name
			doc := t.Doc
			if doc == nil {
				doc = g.Doc
			}
			s.docs[name] = doc.Text()
			if st, ok := t.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					s.readField(name, f)
				}
			}
		}
	}
}

func (s *source) readField(of string, f *ast.Field) {
	if len(f.Names) == 0 {
		s.embedded[of] = append(s.embedded[of], f.Type)
	}
	if f.Tag == nil {
		return
	}
	name, rest, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
	if name == "" || name == "-" {
		return
	}
	text := f.Doc.Text()
	if text == "" {
		text = f.Comment.Text()
	}
	text = marked(strings.Join(strings.Fields(text), " "))
	doc, def := text, ""
	if before, after, ok := strings.Cut(text, "Default: "); ok {
		doc, def = strings.TrimSpace(before), strings.TrimSuffix(strings.TrimSpace(after), ".")
	} else if strings.Contains(text, "Required") {
		def = "required"
	}
	s.fields[of] = append(s.fields[of], field{name: name, typ: typeName(f.Type), doc: doc, def: def, expr: f.Type, optional: rest != ""})
}

// unmarked finds JSON, placeholders and paths in a comment, and what is code in it already.
var unmarked = regexp.MustCompile("`[^`]*`|[\\[{]\".*?\"[\\]}]+|\"[^\" {]*\\{[^\"]+\\}\"|\\{[^\\s{}]+\\}|(?:/[a-z_]+)*/<[a-z]+>(?:/[a-z_]+)*")

// marked returns a comment with its JSON, placeholders and paths as code, because Markdown takes a
// <name> for HTML.
func marked(text string) string {
	return unmarked.ReplaceAllStringFunc(text, func(s string) string { return "`" + strings.Trim(s, "`") + "`" })
}

// typeName returns the words for a type as it is written in JSON.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.ArrayType:
		return "list of " + typeName(e.Elt)
	case *ast.MapType:
		return "object of " + typeName(e.Value)
	case *ast.SelectorExpr:
		return named(e.Sel.Name)
	case *ast.Ident:
		return named(e.Name)
	}
	return fmt.Sprintf("%T", e)
}

// typeNames are the words for types; others are called by their own names.
var typeNames = map[string]string{
	"string":         "text",
	"int":            "whole number",
	"int64":          "whole number",
	"uint64":         "whole number",
	"float64":        "number",
	"bool":           "true or false",
	"Duration":       "duration",
	"Window":         "duration, or `day`, `week`, `month` or `year`",
	"Time":           "time",
	"Parts":          "list of text, or text",
	"Value":          "number or text",
	"Header":         "object of lists of text",
	"RawMatcherSets": "matcher sets",
	"RawMessage":     "object",
}

func named(name string) string { return cmp.Or(typeNames[name], name) }
