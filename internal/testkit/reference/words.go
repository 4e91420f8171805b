package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// files returns the texts of files that are no tests.
func (p *page) files(pattern string) (texts []string) {
	names, err := filepath.Glob(filepath.Join(p.root, pattern))
	if err != nil || len(names) == 0 {
		p.lacks("no files %s", pattern)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name) //nolint:gosec // a source file
		if err != nil {
			p.lacks("%v", err)
		}
		texts = append(texts, string(b))
	}
	return texts
}

// parsed finds the words of a Caddyfile in the tables of the parsers.
var parsed = regexp.MustCompile(`"([a-z_0-9]+)":\s+(?:option\.|parse|p\.parse|c\.parse|app\.parse)|options\["([a-z_]+)"\]`)

// words reports the words that the parsers know and the page does not.
func (p *page) words() {
	text := p.String()
	for _, pattern := range []string{"*.go", "internal/configure/zonefile/*.go", "algorithms/*.go", "rules/*.go"} {
		for _, code := range p.files(pattern) {
			for _, m := range parsed.FindAllStringSubmatch(code, -1) {
				word := m[1] + m[2]
				if !regexp.MustCompile("(?:Caddyfile: |\n\\| )`(?:[^`]* )?" + word + "\\b").MatchString(text) {
					p.lacks("the word %s of the Caddyfile stands in no entry", word)
				}
			}
		}
	}
}
