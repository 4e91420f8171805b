package test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/internal/testkit/trace"
)

// TestPagesAreNear checks that README leads to each page of users by at most two links.
func TestPagesAreNear(t *testing.T) {
	for _, readme := range []string{"README.md", "docs/README.zh-CN.md"} {
		near, last := map[string]bool{readme: true}, []string{readme}
		for range 2 {
			var next []string
			for _, file := range last {
				next = append(next, linked(t, file)...)
			}
			for _, file := range next {
				near[file] = true
			}
			last = next
		}
		for _, file := range append(glob(t, "docs/*.md"), glob(t, "examples/*/README.md")...) {
			if !near[file] && !toOtherReadme(file) {
				t.Errorf("%s: more than two links to %s", readme, file)
			}
		}
	}
}

// linked returns the files of the repository that a page leads to.
func linked(t *testing.T, page string) (files []string) {
	t.Helper()
	if filepath.Ext(page) != ".md" {
		return nil
	}
	for _, m := range link.FindAllStringSubmatch(textOf(t, page), -1) {
		if path, _, _ := strings.Cut(m[1], "#"); path != "" && !strings.Contains(path, "://") {
			files = append(files, filepath.Join(filepath.Dir(page), path))
		}
	}
	return files
}

// optionRow matches a row of a table in docs/options.md: the link, and the example.
var optionRow = regexp.MustCompile("(?m)^\\| \\[`[^`]+`\\]\\([^)]+\\) \\| .* \\| `([^`]+)` \\|$")

// TestOptionsPage adapts the examples of docs/options.md, each where its section says.
func TestOptionsPage(t *testing.T) {
	n := 0
	for title, around := range map[string]string{
		"In a zone":             ":80 {\nrate_limit {\nzone z {\n%s\n}\n}\n}",
		"In the directive":      ":80 {\nrate_limit {\nzone z {\nrule 1/s\n}\n%s\n}\n}",
		"In the global options": "{\nrate_limit {\n%s\n}\n}\n:80 {\nrate_limit 10/s\n}",
	} {
		_, section, _ := strings.Cut(textOf(t, "docs/options.md"), "\n## "+title+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		for _, m := range optionRow.FindAllStringSubmatch(section, -1) {
			n++
			line := m[1]
			if title == "In a zone" && !strings.HasPrefix(line, "rule") && !strings.HasPrefix(line, "in_flight") {
				line += "\nrule 100/1m"
			}
			if _, err := trace.Adapt(fmt.Sprintf(around, line)); err != nil {
				t.Errorf("%s: %v", m[1], err)
			}
		}
	}
	if n != 20 {
		t.Errorf("%d options, want the twenty of the title", n)
	}
}
