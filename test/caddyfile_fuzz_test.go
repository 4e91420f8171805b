package test

import (
	"strings"
	"testing"
)

// FuzzCaddyfile checks that adapting a Caddyfile never panics and that whatever
// adapts also loads.
func FuzzCaddyfile(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g[0])
	}
	f.Fuzz(func(t *testing.T, in string) {
		// Imports read files, and some files never end.
		if strings.Contains(in, "import") || strings.Contains(in, "{$") {
			return // not an input of this target
		}
		if b, err := adapt(t, in); err == nil {
			checkAdapted(t, b)
		}
	})
}
