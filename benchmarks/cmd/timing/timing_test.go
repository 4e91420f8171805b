package main

import (
	"bytes"
	"os"
	"testing"
)

// TestPictureIsTrue checks that docs/timing.svg is what the algorithms do now.
func TestPictureIsTrue(t *testing.T) {
	want, err := drawing()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/timing.svg")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/timing.svg (%v) is stale: run go run ./cmd/timing in benchmarks/", err)
	}
}

// TestRowsKeepTheirBounds checks that of the two bursts, which are within one window of
// a second, as many requests pass as docs/algorithms.md states.
func TestRowsKeepTheirBounds(t *testing.T) {
	for _, row := range rows {
		o, err := judge(row.name, row.options)
		if err != nil {
			t.Fatal(err)
		}
		passed := 0
		for _, at := range o.admitted {
			if at < 1.5 {
				passed++
			}
		}
		want := map[string]int{"fixed_window align": 10, "token_bucket, gcra": 7, "leaky_bucket": 7, "token_bucket step 1s": 10}[row.label]
		if want == 0 {
			want = limit
		}
		if passed != want {
			t.Errorf("%s: %d pass of the bursts, want %d", row.label, passed, want)
		}
		if row.name == "leaky_bucket" && len(o.left) == 0 {
			t.Error("no request waits in the queue")
		}
	}
}
