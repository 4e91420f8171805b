//go:build unix

package main

import "testing"

// TestMutantsApply finds the text of every mutant in the product, once.
func TestMutantsApply(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	all, err := choose("")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t.Context(), root, t.TempDir()}
	for _, m := range all {
		if _, err := l.apply(m); err != nil {
			t.Error(err)
		}
	}
}
