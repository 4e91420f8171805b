package oracle

import (
	"math/bits"
	"sort"
)

// first returns the smallest i in [0, n) for which yes returns true, or n if there is
// none. yes must be monotonic.
func first(n int64, yes func(int64) bool) int64 {
	return int64(sort.Search(int(n), func(i int) bool { return yes(int64(i)) }))
}

// after returns the shortest wait for which yes returns true. yes must be monotonic
// and become true eventually.
func after(yes func(wait int64) bool) int64 {
	enough := int64(1)
	for !yes(enough) {
		enough *= 2
	}
	return first(enough, yes)
}

// atMost reports whether a*b <= c*d, for b and d above zero. The products are compared
// in 128 bits.
func atMost(a, b, c, d int64) bool {
	switch {
	case a <= 0 && c >= 0:
		return true
	case a >= 0 && c <= 0:
		return a == 0 && c == 0
	case a < 0:
		return atMost(-c, d, -a, b)
	}
	ahi, alo := bits.Mul64(uint64(a), uint64(b))
	chi, clo := bits.Mul64(uint64(c), uint64(d))
	return ahi < chi || ahi == chi && alo <= clo
}
