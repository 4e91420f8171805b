package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// samples are the values of benchmarks by name and unit, one per round. A benchmark is
// listed by its name and by name@processors.
type samples map[string]map[string][]float64

var processors = regexp.MustCompile(`-\d+$`)

// read parses the lines of Go benchmarks and skips all others.
func read(r io.Reader) (samples, error) {
	s := make(samples)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || len(fields)%2 != 0 {
			continue
		}
		name, ok := strings.CutPrefix(fields[0], "Benchmark")
		if !ok {
			continue
		}
		procs := strings.TrimPrefix(processors.FindString(name), "-")
		name = processors.ReplaceAllString(name, "")
		if procs == "" {
			procs = "1"
		}
		for i := 2; i < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			s.add(name, fields[i+1], v)
			s.add(name+"@"+procs, fields[i+1], v)
		}
	}
	return s, lines.Err()
}

func (s samples) add(name, unit string, v float64) {
	if s[name] == nil {
		s[name] = make(map[string][]float64)
	}
	s[name][unit] = append(s[name][unit], v)
}

// median returns the median over all rounds, or NaN if the benchmark did not run.
func (s samples) median(name, unit string) float64 { return median(s[name][unit]) }

// paired returns the median over the rounds of f applied to two benchmarks of the same
// round, which cancels out what slows down a whole round.
func (s samples) paired(a, b, unit string, f func(a, b float64) float64) float64 {
	return median(s.pairs(a, b, unit, f))
}

func (s samples) pairs(a, b, unit string, f func(a, b float64) float64) (all []float64) {
	x, y := s[a][unit], s[b][unit]
	for i := range min(len(x), len(y)) {
		all = append(all, f(x[i], y[i]))
	}
	return all
}

// interval returns the distribution-free 95% confidence interval of the median, which
// is between two order statistics, or NaN if there are too few values.
func interval(values []float64) (low, high float64) {
	n := float64(len(values))
	rank := int(math.Floor((n - 1.96*math.Sqrt(n)) / 2))
	if rank < 1 {
		return math.NaN(), math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return v[rank-1], v[len(v)-rank]
}

func difference(a, b float64) float64 { return a - b }
func ratio(a, b float64) float64      { return a / b }

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
