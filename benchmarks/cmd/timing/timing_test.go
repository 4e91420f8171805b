package main

import (
	"bytes"
	"os"
	"testing"
)

// The picture in the documentation is what the algorithms do now.
func TestPictureIsTrue(t *testing.T) {
	want, err := drawing()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/timing.svg")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("docs/timing.svg (%v) is another picture: run go run ./cmd/timing in benchmarks/", err)
	}
}

// Each row shows what docs/algorithms.md says of it: how many pass of the two
// bursts, which lie in one window of a second.
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
			t.Error("nobody waits in the queue")
		}
	}
}
