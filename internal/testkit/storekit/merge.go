package storekit

import (
	"slices"

	"github.com/dianalimiter/diana/algorithms"
)

// Merge charges a debt of a built-in algorithm to a state, whatever the verdict, as its function
// in Lua does. It knows the rule by its arguments and the layout of its states. A growing state
// has room for the debt.
func Merge(r algorithms.Rule, s algorithms.State, debt []int64, now int64) {
	_, refills := r.(algorithms.Refilling)
	_, grows := r.(algorithms.Growing)
	dated, isDated := r.(algorithms.Dated)
	switch {
	case refills:
		mergeLevel(r, s, debt[0], now)
	case grows:
		mergeStamps(r, s, debt, now)
	case isDated:
		left, _ := r.Numbers(s, now)
		if start, _ := dated.Present(now); start == debt[0] && left > 0 && debt[1] > 0 {
			r.Charge(s, now, min(debt[1], left), 0)
		}
	case r.Words() == 2:
		mergeWindow(r, s, debt, now)
	default:
		mergeParts(r, s, debt, now)
	}
}

// mergeLevel raises a level, up to the capacity.
func mergeLevel(r algorithms.Rule, s algorithms.State, debt, now int64) {
	if debt == 0 {
		return
	}
	args := r.Args(now)
	perMicrosecond, capacity, step := args[1], args[3], args[5]
	r.Overdraw(s, now, 0) // the level is that of now, under this rule
	if step > 0 {
		now -= now % step
	}
	level := (s[0]-now)*perMicrosecond + s[1]
	if sum := min(level+debt, capacity); sum > level {
		s[0], s[1] = now+sum/perMicrosecond, sum%perMicrosecond
	}
}

// mergeWindow charges a window that is open, up to the limit.
func mergeWindow(r algorithms.Rule, s algorithms.State, debt []int64, now int64) {
	args := r.Args(now)
	limit, window, align := args[0], args[1], args[2]
	start := min(debt[0], now-now%window*align)
	left, _ := r.Numbers(s, now)
	cost := min(debt[1], left)
	if cost == 0 || start+window <= now {
		return
	}
	if left == limit {
		s[0] = start
	}
	s[1] = limit - left + cost
}

// mergeParts charges each part of a window by its age, up to twice the limit in all.
func mergeParts(r algorithms.Rule, s algorithms.State, debt []int64, now int64) {
	args := r.Args(now)
	limit, parts, width, lease := args[0], args[1], args[2], args[3]
	newest, used := max(s[0], (now+lease)/width), int64(0)
	for x, c := range s[1:] {
		if s[0]-int64(x) >= now/width-parts {
			used += c
		}
	}
	for x, c := range debt[1:] {
		age := max(0, newest-debt[0]+int64(x))
		c = min(c, max(0, 2*limit-used))
		if c == 0 || age > newest-now/width+parts {
			continue
		}
		for range min(newest-s[0], int64(len(s))) {
			copy(s[2:], s[1:])
			s[1] = 0
		}
		s[0] = newest
		s[1+age] += c
		used += c
	}
}

// newestOnly is how many of the newest timestamps of a log the script looks at to insert others.
const newestOnly = 1024

// mergeStamps inserts timestamps among those in the window, in order.
func mergeStamps(r algorithms.Rule, s algorithms.State, debt []int64, now int64) {
	edge, size := now-r.Window(), int64(len(s)-1)
	var all []int64
	for i := max(0, s[0]-size); i < s[0]; i++ {
		if at := s[1+i%size]; at > edge {
			all = append(all, at)
		}
	}
	least, had := int64(0), len(all)
	if had > newestOnly {
		least = all[had-newestOnly]
	}
	n, each := debt[0], debt[1]
	for _, at := range debt[2:] {
		for range min(each, n) {
			if at > edge {
				all = append(all, min(max(at, least), now))
			}
		}
		n -= each
	}
	if len(all) == had {
		return
	}
	slices.Sort(all)
	clear(s)
	s[0] = int64(copy(s[1:], all))
}
