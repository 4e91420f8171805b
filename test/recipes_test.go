package test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// runElsewhere has the recipes without a trace of requests, and the tests that run them.
var runElsewhere = map[string]string{
	"A page of your own for 429": "TestErrorPage",
	"gRPC":                       "TestGRPC",
}

// TestEveryRecipeIsRun checks that each recipe has requests with their responses, which
// TestDocumentedCaddyfiles sends, or a test of its own.
func TestEveryRecipeIsRun(t *testing.T) {
	n := 0
	for _, recipe := range strings.Split(textOf(t, "docs/recipes.md"), "\n### ")[1:] {
		name, text, _ := strings.Cut(recipe, "\n")
		name = strings.Trim(name, "`")
		elsewhere, listed := runElsewhere[name]
		traced := strings.Contains(text, "\n```requests\n")
		switch n++; {
		case !strings.Contains(text, "\n```caddyfile\n"):
			t.Errorf("%s: no Caddyfile", name)
		case !traced && !listed:
			t.Errorf("%s: no requests with their responses", name)
		case traced && listed:
			t.Errorf("%s has requests, and is in the list of those without", name)
		case listed && !isTest(t, elsewhere):
			t.Errorf("%s: there is no %s", name, elsewhere)
		}
	}
	t.Logf("%d recipes", n)
}

// TestTriedOnWhat checks that the tests exist which the table of what was tried names.
func TestTriedOnWhat(t *testing.T) {
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(textOf(t, "docs/internals/tried.md"), -1)
	if len(names) < 15 {
		t.Fatalf("%d tests in the table", len(names))
	}
	for _, name := range names {
		if !isTest(t, name[1]) {
			t.Errorf("there is no %s", name[1])
		}
	}
}

// isTest reports whether there is a test of this name in the repository.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	return exec.Command("grep", "-rqE", "--include=*_test.go", `^func `+name+`\(`, "..").Run() == nil
}
