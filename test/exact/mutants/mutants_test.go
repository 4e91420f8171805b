//go:build unix

package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/scripts/assemble"
)

// TestMutantsApply checks that the text of every mutant occurs exactly once in the
// product, that every mutant in Lua changes the generated script, and that every other one
// is of a package in which it can be selected.
func TestMutantsApply(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	all, err := choose("")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root, "scripts", "decide.lua"))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{ctx: t.Context(), root: root, dir: t.TempDir()}
	for _, m := range all {
		changed, err := l.apply(m)
		if err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(m.file, ".lua") {
			if _, ok := packages[path.Dir(m.file)]; !ok {
				t.Errorf("mutant %s: its package is not in packages", m.name)
			}
			continue
		}
		text, err := assemble.Script(mutated{os.DirFS(root), m.file, changed})
		if err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
		}
		if text == string(script) {
			t.Errorf("mutant %s is not in the script", m.name)
		}
	}
}

// TestSimulatedMutantsAreFound checks that the table in docs/internals/simulation.md is of the
// mutants that the simulation has to find, each of them found.
func TestSimulatedMutantsAreFound(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "internals", "simulation.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, found, _ := strings.Cut(string(text), foundSection)
	for _, name := range simulated {
		if !strings.Contains(found, "\n| "+name+" | ") {
			t.Errorf("%s is not in the table of the simulation", name)
		}
	}
	for _, row := range strings.Split(found, "\n| ")[1:] {
		if name, _, _ := strings.Cut(row, " | "); name != "mutant" && !slices.Contains(simulated, name) {
			t.Errorf("the simulation does not have to find %s", name)
		}
	}
	if strings.Contains(found, "**not found**") {
		t.Error("a mutant was not found")
	}
}
