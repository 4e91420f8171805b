//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dianalimiter/diana/scripts/assemble"
)

// TestMutantsApply checks that the text of every mutant occurs exactly once in its
// function, and that every mutant in Lua changes the generated script.
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
		if !m.isLua() {
			f, err := l.function(m)
			if err == nil {
				_, err = f.replaced(m)
			}
			if err != nil {
				t.Error(err)
			}
			continue
		}
		changed, err := l.applyLua(m)
		if err != nil {
			t.Error(err)
		}
		text, err := assemble.Script(mutated{os.DirFS(root), m.in, changed})
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
