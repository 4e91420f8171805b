package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMediansAreOfRounds(t *testing.T) {
	s, err := read(strings.NewReader(`goos: linux
{"level":"info"}
BenchmarkHTTP/bare	100	20.0 cpu-us/op	1000 req/s
BenchmarkHTTP/local	100	22.0 cpu-us/op	900 req/s
BenchmarkHTTP/local	100	90.0 cpu-us/op	300 req/s
BenchmarkHTTP/bare	100	89.5 cpu-us/op	300 req/s
BenchmarkHTTP/bare	100	30.0 cpu-us/op	600 req/s
BenchmarkHTTP/local	100	31.0 cpu-us/op	600 req/s
BenchmarkAllowParallel/gcra   	     100	       800 ns/op	       3 B/op
BenchmarkAllowParallel/gcra-2   	     100	       500 ns/op	       3 B/op
PASS
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"median", s.median("HTTP/local", "cpu-us/op"), 31},
		{"difference to bare of the same round", s.paired("HTTP/local", "HTTP/bare", "cpu-us/op", difference), 1},
		{"ratio to bare of the same round", s.paired("HTTP/local", "HTTP/bare", "req/s", ratio), 1},
		{"one processor", s.median("AllowParallel/gcra@1", "ns/op"), 800},
		{"two processors", s.median("AllowParallel/gcra@2", "ns/op"), 500},
		{"an even number of rounds", s.median("AllowParallel/gcra", "ns/op"), 650},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	if low, high := interval(s["HTTP/local"]["cpu-us/op"]); !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("three values have a confidence interval: %v to %v", low, high)
	}
	if v := s.median("HTTP/none", "req/s"); !math.IsNaN(v) {
		t.Errorf("a benchmark that did not run: %v", v)
	}
}

// TestIntervalHoldsTheMedian draws many samples and checks that the median of their
// distribution is outside of one in twenty intervals.
func TestIntervalHoldsTheMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{9, 20, 81} {
		const tries = 4000
		outside := 0
		for range tries {
			all := make([]float64, n)
			for i := range all {
				all[i] = math.Exp(3 * random.NormFloat64()) // the median is 1
			}
			low, high := interval(all)
			if low > 1 || high < 1 {
				outside++
			}
		}
		if part := float64(outside) / tries; part > 0.06 || n == 81 && part < 0.02 {
			t.Errorf("%.3f of the intervals of %d values do not contain the median, want 0.05, or less for few values", part, n)
		}
	}
}

// results returns the results of one round.
func results(t *testing.T) samples {
	t.Helper()
	f, err := os.Open("testdata/results.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s, err := read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestEveryRowHasItsFigures checks that one round of benchmarks/run has the figures of
// every row.
func TestEveryRowHasItsFigures(t *testing.T) {
	s := results(t)
	var b strings.Builder
	if err := write(&b, machine(), rows(s)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, "not measured") || strings.Count(line, "|") != 5 {
			t.Errorf("row %q", line)
		}
	}
}

// TestPlots draws the charts and checks their texts.
func TestPlots(t *testing.T) {
	s := results(t)
	folder := t.TempDir()
	if err := draw(s, folder); err != nil {
		t.Fatal(err)
	}
	for _, c := range charts {
		svg, err := os.ReadFile(filepath.Join(folder, c.file))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range append(c.ticks, c.title, c.y) {
			if !strings.Contains(string(svg), ">"+text+"<") {
				t.Errorf("%s: no %q", c.file, text)
			}
		}
	}
}
