package test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/reference"
)

// TestReference compares docs/reference.md and docs/openapi.json with what the code says now. With
// UPDATE_GOLDENS set, it writes them.
func TestReference(t *testing.T) {
	for file, write := range map[string]func(root string) (string, error){"docs/reference.md": reference.Write, "docs/openapi.json": reference.OpenAPI} {
		want, err := write("..")
		if err != nil {
			t.Fatal(err)
		}
		if os.Getenv("UPDATE_GOLDENS") != "" {
			if err := os.WriteFile("../"+file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have := textOf(t, file); have != want {
			t.Errorf("%s is not what the code says: run UPDATE_GOLDENS=1 go test -run TestReference ./test", file)
		}
	}
}

// loggedText finds the texts of log lines at level WARN or ERROR.
var loggedText = regexp.MustCompile(`(?i)logger\.(?:Warn|Error)\(\s*"([^"]+)"|\bwarn\((?:(?:h\.logger|l|logger), )?"([^"]+)"|\b(?:what|msg) :?= "([^"]+)"|\.(?:fail\(|log\(zap\.(?:Warn|Error)Level, )"([^"]+)"`)

// TestTroubleshooting requires an entry for each line that is logged at level WARN or ERROR.
func TestTroubleshooting(t *testing.T) {
	page, n := textOf(t, "docs/troubleshooting.md"), 0
	for _, pattern := range []string{"*.go", "rules/*.go", "internal/ops/admin/*.go", "internal/limiter/*.go", "internal/lib/background/*.go", "internal/configure/warnings/*.go"} {
		for _, file := range glob(t, pattern) {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range loggedText.FindAllStringSubmatch(textOf(t, file), -1) {
				n++
				if text := strings.Join(m[1:], ""); !strings.Contains(page, "\n### "+text+"\n") {
					t.Errorf("%s logs %q: docs/troubleshooting.md has no such heading", file, text)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d lines found", n)
	}
}
