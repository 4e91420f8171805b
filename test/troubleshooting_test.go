package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// configurationFiles are the files whose errors a configuration, or a document of rules, can
// meet.
var configurationFiles = []string{
	"app.go", "caddyfile*.go", "internal/configure/compat/*.go", "handler.go", "quota_handler.go", "rules.go", "storejson.go", "stores.go", "internal/ops/pagehandler.go", "internal/stores/redisconfig/*.go", "internal/configure/zonefile/*.go",
	"algorithms/*.go", "config/*.go", "internal/body/field.go", "internal/usage/dialect/table.go", "internal/configure/external/*.go", "internal/lib/filewatch/*.go",
	"internal/key/index.go", "internal/key/pattern.go", "internal/key/plan.go", "internal/key/template.go", "internal/configure/option/*.go",
	"internal/limiter/change.go", "internal/limiter/limiter.go", "internal/limiter/lists.go", "internal/follow/lists/*.go", "internal/limiter/index.go",
	"internal/limiter/registry.go", "internal/limiter/ruleset.go", "internal/limiter/zone.go",
	"internal/usage/settle/*.go", "rules/document.go", "rules/rules.go", "rules/sources/file.go", "rules/sources/http.go", "rules/sources/private.go", "rules/sources/redis.go", "rules/sources/sources.go",
}

// otherErrors are errors in these files that no configuration meets.
var otherErrors = map[string]bool{
	"settle and tokens: want Responses to check them": true, // of a program that checks a zone without
	"unchanged":         true, // no error
	"app http is a …":   true, // of the admin API
	"url: invalid":      true, // the URL was parsed before
	"…: not an address": true, // of a socket
	"… parts: want …, for …, or the hash alone": true, // of the admin API
	"part …: want at most … bytes":              true, // of the admin API
	"part … is empty: want a value of …":        true, // of the admin API
	"no document":                               true, // of a source: a state
	"channel …: …":                              true, // of Redis, at run time
}

// foreignErrors are errors of Caddy's that configurations of Diana often meet.
var foreignErrors = []string{"unrecognized matcher name: …", `json: unknown field "…"`, "wrong argument count or unexpected line ending after '…'"}

var (
	verb    = regexp.MustCompile(`"?%[+#]?(?:\[\d\])?[a-zA-Z]"?`)
	wrapper = regexp.MustCompile(`%w$`)
)

// configurationErrors returns the texts of the errors of the configuration, with … for what
// varies: those that need an entry, and those that only say where another error is.
func configurationErrors(t *testing.T) (errors, wrappers map[string]string) {
	t.Helper()
	errors, wrappers = make(map[string]string), make(map[string]string)
	for _, pattern := range configurationFiles {
		files := glob(t, pattern)
		if len(files) == 0 {
			t.Errorf("%s: no such file", pattern)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, textOf(t, file), 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				text, ok := errorText(call)
				if !ok {
					return true
				}
				shown := verb.ReplaceAllString(text, "…")
				if wrapper.MatchString(text) && !strings.Contains(text, "want") {
					wrappers[shown] = file
				} else {
					errors[shown] = file
				}
				return true
			})
		}
	}
	return errors, wrappers
}

// errorText returns the format of a call that makes an error.
func errorText(call *ast.CallExpr) (format string, ok bool) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return "", false
	}
	switch f.Sel.Name {
	case "Errorf", "Errf", "Err":
	case "New":
		if x, ok := f.X.(*ast.Ident); !ok || x.Name != "errors" {
			return "", false
		}
	default:
		return "", false
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	format, err := strconv.Unquote(literal.Value)
	return format, err == nil
}

// errorRow matches a row of a table of errors: the error, its cause and the remedy.
var errorRow = regexp.MustCompile("(?m)^\\| (?:`` (.+?) ``|`([^`]+)`) \\| ([^|]+) \\| ([^|]+) \\|$")

// documentedErrors returns the errors in the tables of docs/troubleshooting.md.
func documentedErrors(t *testing.T) map[string]bool {
	t.Helper()
	_, page, ok := strings.Cut(textOf(t, "docs/troubleshooting.md"), "\n## Errors of the configuration\n")
	if !ok {
		t.Fatal("docs/troubleshooting.md has no section of errors of the configuration")
	}
	all := make(map[string]bool)
	for _, m := range errorRow.FindAllStringSubmatch(page, -1) {
		text := m[1] + m[2]
		if all[text] {
			t.Errorf("%q has two entries", text)
		}
		all[text] = true
	}
	return all
}

// TestConfigurationErrorsAreDocumented requires each error of the configuration to say what is wanted, or to have
// an entry with cause and remedy.
func TestConfigurationErrorsAreDocumented(t *testing.T) {
	documented := documentedErrors(t)
	errors, wrappers := configurationErrors(t)
	for text, file := range errors {
		switch says := strings.Contains(text, "want"); {
		case !otherErrors[text] && !says && !documented[text]:
			t.Errorf("%s: %q says neither what is wanted nor has an entry in docs/troubleshooting.md", file, text)
		case says && documented[text]:
			t.Errorf("%s: %q says what is wanted: docs/troubleshooting.md need not explain it", file, text)
		}
	}
	for _, text := range foreignErrors {
		errors[text] = "Caddy"
	}
	for text := range documented {
		if errors[text] == "" && wrappers[text] == "" {
			t.Errorf("docs/troubleshooting.md explains %q, which nothing says", text)
		}
	}
	if len(errors) < 150 {
		t.Errorf("only %d errors found", len(errors))
	}
}

// TestGoldenErrorsAreDocumented looks up each error of the goldens that does not say what is wanted, as a user
// would who has it on screen.
func TestGoldenErrorsAreDocumented(t *testing.T) {
	var list []*regexp.Regexp
	for text := range documentedErrors(t) {
		parts := strings.Split(text, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		list = append(list, regexp.MustCompile(`(?:: )`+strings.Join(parts, `(?:.*)`)+`, at Caddyfile:\d+`))
	}
	for file, g := range goldens(t) {
		if !strings.HasPrefix(filepath.Base(file), "bad_") {
			continue
		}
		found := strings.Contains(g[1], "want")
		for _, re := range list {
			found = found || re.MatchString(g[1])
		}
		if !found {
			t.Errorf("%s: docs/troubleshooting.md has no entry for %s", filepath.Base(file), g[1])
		}
	}
}
