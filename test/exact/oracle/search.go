package oracle

import (
	"math/bits"
	"sort"
)

// first returns the least i in [0, n) for which yes, which stays true once it
// is true, or n if there is none.
func first(n int64, yes func(int64) bool) int64 {
	return int64(sort.Search(int(n), func(i int) bool { return yes(int64(i)) }))
}

// after returns the least time to wait until yes, which stays true once it is
// true and has to become true some day.
func after(yes func(wait int64) bool) int64 {
	enough := int64(1)
	for !yes(enough) {
		enough *= 2
	}
	return first(enough, yes)
}

// atMost says whether a*b <= c*d, for b and d above zero. The products are
// never cut: they are compared in 128 bits.
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
