package test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longestFile is the maximum number of lines of a file, unless
// docs/internals/architecture.md gives a reason.
const longestFile = 500

// handwritten returns the source and text files of all modules, except vendored
// and built ones.
func handwritten(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		path = strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || slices.Contains([]string{"bin", "dist", "internal/ops/page/uplot"}, path)):
			return filepath.SkipDir
		case slices.Contains([]string{".go", ".lua", ".tmpl", ".md", ".js", ".html", ".css", ".yml", ".yaml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestNoFileIsTooLong checks that the files longer than longestFile are those with a reason
// in docs/internals/architecture.md, under "Long files".
func TestNoFileIsTooLong(t *testing.T) {
	_, reasons, _ := strings.Cut(textOf(t, "docs/internals/architecture.md"), "\n## Long files\n")
	reasons, _, _ = strings.Cut(reasons, "\n## ")
	for _, file := range handwritten(t) {
		n := bytes.Count([]byte(textOf(t, file)), []byte("\n"))
		switch excepted := strings.Contains(reasons, "`"+file+"`"); {
		case n > longestFile && !excepted:
			t.Errorf("%s has %d lines: want at most %d, or a reason in docs/internals/architecture.md", file, n, longestFile)
		case n <= longestFile && excepted:
			t.Errorf("%s has only %d lines: docs/internals/architecture.md need not name it under Long files", file, n)
		}
	}
}

// namedPath is a path from the root of the module in the text of a page, without patterns such as *.go.
var namedPath = regexp.MustCompile("`([a-z.][\\w.-]*(?:/[\\w.-]+)+)/?`")

// TestFilesAreNamed checks that docs/internals/architecture.md names each file of the packages whose
// files it lists, and that the paths that it names exist.
func TestFilesAreNamed(t *testing.T) {
	text := textOf(t, "docs/internals/architecture.md")
	for _, pattern := range []string{"*.go", "internal/ops/*.go", "internal/ops/admin/*.go", "internal/configure/zonefile/*.go", "internal/limiter/*.go", "internal/stores/redis/*.go"} {
		for _, file := range glob(t, pattern) {
			if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/internals/architecture.md does not name %s", file)
			}
		}
	}
	n := 0
	for _, m := range namedPath.FindAllStringSubmatch(text, -1) {
		folder, _, _ := strings.Cut(m[1], "/")
		if _, err := os.Stat(filepath.Join(root, folder)); folder == "bin" || err != nil && filepath.Ext(m[1]) != ".go" {
			continue // built, or a path of another module
		}
		if strings.HasSuffix(m[1], "/...") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("docs/internals/architecture.md names %s, which does not exist", m[1])
		}
		n++
	}
	if n < 100 {
		t.Errorf("only %d paths were checked", n)
	}
}

// TestPicturesAreSmall checks that the pictures of the documentation load quickly.
func TestPicturesAreSmall(t *testing.T) {
	const most = 100 << 10 // bytes
	pictures := slices.Concat(glob(t, "docs/*.svg"), glob(t, "docs/page/*.png"))
	for _, file := range pictures {
		if n := len(textOf(t, file)); n > most {
			t.Errorf("%s has %d bytes, want at most %d", file, n, most)
		}
	}
	if len(pictures) < 10 {
		t.Errorf("only %d pictures", len(pictures))
	}
}

// TestExportedNamesAreDocumented checks what the linter does not: that members of
// exported structs and interfaces have comments. One comment may document several
// names of a declaration.
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
		t.Errorf("only %d names were checked", n)
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

// caddyHTTP is Caddy's HTTP app, which stores must not know.
const caddyHTTP = "github.com/caddyserver/caddy/v2/modules/caddyhttp"

// TestArrows checks that every package of this module imports the packages of the module that
// the table has, and no others, and that no store depends on Caddy's HTTP app.
// Imports run one way, from the root package down to algorithms. Test files may import
// any package.
func TestArrows(t *testing.T) {
	const anyStore = " stores internal/stores/memory internal/stores/redis "
	// The names are relative to the root of the module, which is ".".
	allowed := map[string]string{
		".": "config internal/configure/autoname internal/configure/braces internal/configure/caddyfields internal/lib/background internal/lib/clock internal/configure/compat internal/lib/events internal/configure/external internal/follow internal/history internal/configure/httpapp internal/key internal/limiter internal/follow/lists internal/lib/loglimit internal/metrics internal/configure/names internal/ops " +
			"internal/configure/option internal/configure/placeholders internal/lib/pool internal/lib/process internal/ops/running internal/usage/settle internal/topk internal/configure/walk internal/stores/redisconfig internal/configure/warnings internal/configure/zonefile rules rules/sources stores internal/stores/memory internal/stores/observers",
		"cmd/caddy": ".", "examples/llm-gateway": ". examples/llm-gateway/upstream", "examples/llm-gateway/upstream": "", "examples/overload": ".",

		"internal/ops/running": "internal/follow internal/limiter internal/follow/lists internal/lib/process stores rules",
		"internal/ops":         "internal/configure/braces internal/lib/clock internal/configure/names internal/ops/admin internal/ops/cli internal/ops/replay internal/ops/routes internal/configure/option internal/lib/process internal/ops/running rules",
		"internal/ops/admin":   "algorithms config internal/lib/clock internal/follow internal/limiter internal/lib/loglimit internal/metrics internal/configure/names internal/ops/cli internal/ops/edit internal/ops/page internal/ops/routes internal/configure/option internal/lib/process internal/ops/running internal/topk stores stores/hash internal/stores/memory rules internal/history",
		"internal/ops/routes":  "internal/ops/running internal/configure/caddyfields", "internal/configure/placeholders": "internal/configure/option", "internal/configure/httpapp": "internal/configure/caddyfields", "internal/configure/caddyfields": "",
		"internal/configure/warnings": "algorithms config internal/key internal/limiter internal/configure/placeholders internal/configure/caddyfields internal/configure/walk",
		"internal/configure/braces":   "internal/configure/option", "internal/configure/walk": "internal/limiter internal/configure/caddyfields", "internal/lib/events": "internal/lib/background", "internal/configure/autoname": "config", "internal/configure/external": "", "internal/configure/names": "", "internal/configure/compat": "config internal/configure/autoname internal/key internal/configure/names internal/configure/option internal/configure/placeholders", "internal/history": "internal/lib/clock internal/metrics internal/lib/process",
		"internal/configure/zonefile": "algorithms config internal/key internal/configure/option internal/usage/settle internal/configure/compat",

		"internal/adaptive": "stores/hash",
		"internal/limiter": "algorithms config internal/adaptive internal/body internal/lib/clock internal/key internal/lib/loglimit internal/metrics " +
			"internal/configure/option internal/lib/pool internal/lib/process stores internal/stores/memory",
		"config":                "algorithms internal/key internal/configure/option internal/configure/placeholders",
		"rules":                 "config internal/configure/option",
		"internal/follow":       "config internal/lib/background internal/lib/loglimit rules",
		"internal/follow/lists": "config internal/configure/external internal/lib/filewatch internal/follow internal/lib/loglimit",
		"rules/sources":         "internal/configure/external internal/lib/filewatch internal/lib/process internal/lib/subscribe rules",
		"internal/metrics":      "internal/lib/process stores",
		"internal/ops/cli":      "config internal/ops/edit internal/limiter internal/follow/lists internal/metrics internal/ops/replay internal/configure/option internal/topk rules internal/history",
		"internal/ops/edit":     "config internal/configure/option",
		"internal/ops/replay":   "algorithms config internal/key internal/limiter internal/metrics internal/ops/routes stores",
		"internal/key":          "internal/body stores/hash",

		"stores":                      "algorithms stores/hash",
		"stores/hash":                 "",
		"stores/records":              "algorithms stores",
		"internal/stores/memory":      "algorithms stores",
		"internal/stores/observers":   "stores",
		"internal/stores/outage":      "algorithms stores internal/stores/memory",
		"internal/stores/redis":       "algorithms stores stores/hash internal/stores/memory internal/stores/observers internal/stores/outage internal/lib/subscribe scripts",
		"internal/stores/redisconfig": "config internal/lib/clock internal/configure/external internal/key internal/configure/option internal/lib/pool internal/lib/process stores internal/stores/memory internal/stores/redis internal/lib/subscribe",
		"internal/testkit/storekit":   "algorithms stores stores/records",

		"scripts":          "algorithms",
		"scripts/assemble": "",
		"algorithms":       "internal/configure/option",

		"internal/lib/background": "internal/lib/clock internal/lib/loglimit", "internal/lib/clock": "", "internal/lib/filewatch": "", "internal/lib/subscribe": "", "internal/lib/loglimit": "", "internal/configure/option": "",
		"internal/usage/dialect": "internal/usage/scan", "internal/usage/settle": "config internal/body internal/usage/dialect internal/key internal/usage/scan",
		"internal/body": "", "internal/usage/scan": "", "internal/ops/page": "", "internal/lib/pool": "", "internal/lib/process": "", "internal/topk": "internal/metrics internal/lib/pool stores",

		"internal/testkit/benchtest": "internal/testkit/usage", "internal/testkit/reference": "internal/limiter internal/testkit/trace", "internal/testkit/freeport": "", "internal/testkit/redistest": "internal/testkit/freeport internal/testkit/testdir", "internal/testkit/testdir": "", "internal/testkit/trace": "", "internal/testkit/usage": "",
		"algotest":   ". algorithms internal/testkit/redistest stores internal/stores/memory internal/stores/redis internal/testkit/storekit internal/testkit/trace",
		"sourcetest": "config internal/follow internal/testkit/testdir rules",
		"storetest":  "algorithms stores internal/stores/memory",

		"test": "",
	}
	// What decides, counts and checks the configuration knows no Redis, no tools and no sources.
	without := map[string]string{
		"config": "github.com/redis/go-redis/v9", "internal/metrics": "github.com/redis/go-redis/v9", "internal/limiter": "github.com/redis/go-redis/v9",
	}
	packages := modulePackages(t)
	// Whoever reads one of these packages meets at most so many lines of code. Those that they bring with
	// them may shrink.
	for name, most := range map[string]int{"internal/limiter": 16400, "config": 6400, "internal/metrics": 3750} {
		if n := closureLines(t, packages, name); n > most || n < most*9/10 {
			t.Errorf("package %s brings %d lines of code with it, want about %d, and no more", name, n, most)
		}
	}
	for _, p := range packages {
		if far := without[p.name]; far != "" && slices.Contains(p.deps, far) {
			t.Errorf("package %s depends on %s", p.name, far)
		}
		list, known := allowed[p.name]
		if !known {
			t.Errorf("package %s is not in the table: add it with the packages that it may import", p.name)
			continue
		}
		for _, other := range p.imports {
			if !slices.Contains(strings.Fields(list), other) {
				t.Errorf("package %s imports %s, want only %q", p.name, other, strings.Fields(list))
			}
		}
		for _, other := range strings.Fields(list) {
			if !slices.Contains(p.imports, other) {
				t.Errorf("package %s does not import %s: remove it from the table", p.name, other)
			}
		}
		if slices.Contains(strings.Fields(anyStore), p.name) && slices.Contains(p.deps, caddyHTTP) {
			t.Errorf("package %s depends on %s", p.name, caddyHTTP)
		}
	}
}

// TestFloors checks that internal stays a short list of folders, that what stands in internal/lib knows
// nothing of this project, and that only what tests import uses internal/testkit.
func TestFloors(t *testing.T) {
	const mostFolders = 14
	forTests := []string{"algotest", "sourcetest", "storetest"}
	folders := map[string]bool{}
	for _, p := range modulePackages(t) {
		if rest, ok := strings.CutPrefix(p.name, "internal/"); ok {
			folder, _, _ := strings.Cut(rest, "/")
			folders[folder] = true
		}
		for _, other := range p.imports {
			if strings.HasPrefix(p.name, "internal/lib/") && !strings.HasPrefix(other, "internal/lib/") {
				t.Errorf("package %s imports %s: want none outside internal/lib", p.name, other)
			}
			if strings.HasPrefix(other, "internal/testkit/") && !strings.HasPrefix(p.name, "internal/testkit/") && !slices.Contains(forTests, p.name) {
				t.Errorf("package %s imports %s, which is for tests", p.name, other)
			}
		}
	}
	if len(folders) > mostFolders || len(folders) < mostFolders/2 {
		t.Errorf("internal has %d folders, want at most %d", len(folders), mostFolders)
	}
}

// closureLines returns the lines of code, without blank lines and comments, of a package and all that it
// imports of this module.
func closureLines(t *testing.T, packages []modulePackage, name string) (n int) {
	t.Helper()
	at := slices.IndexFunc(packages, func(p modulePackage) bool { return p.name == name })
	for _, p := range packages {
		if p.name != name && !slices.Contains(packages[at].deps, p.path) {
			continue
		}
		for _, file := range p.files {
			for line := range strings.Lines(textOf(t, filepath.Join(p.name, file))) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
					n++
				}
			}
		}
	}
	return n
}

// modulePackage is a package of this module. The names in imports, too, are relative
// to the root, and are only those of this module.
type modulePackage struct {
	name    string
	path    string // of imports
	files   []string
	imports []string
	deps    []string // import paths of all dependencies
}

func modulePackages(t *testing.T) (list []modulePackage) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps,Module,GoFiles", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct {
			ImportPath    string
			Imports, Deps []string
			GoFiles       []string
			Module        struct{ Path string }
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		relative := func(path string) (name string, ours bool) {
			if path == p.Module.Path {
				return ".", true
			}
			return strings.CutPrefix(path, p.Module.Path+"/")
		}
		m := modulePackage{deps: p.Deps, path: p.ImportPath, files: p.GoFiles}
		m.name, _ = relative(p.ImportPath)
		for _, path := range p.Imports {
			if name, ours := relative(path); ours {
				m.imports = append(m.imports, name)
			}
		}
		list = append(list, m)
	}
	if len(list) < 20 {
		t.Errorf("only %d packages", len(list))
	}
	return list
}
