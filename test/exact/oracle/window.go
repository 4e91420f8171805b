package oracle

import (
	"strconv"
	"strings"
	"time"
)

// fixedWindow counts in consecutive windows.
type fixedWindow struct {
	limit, window int64
	align         bool
	opened        int64 // begin of the current window
	taken         journal
}

func (f *fixedWindow) capacity() int64 { return f.limit }

func (f *fixedWindow) open(t int64) bool {
	return !f.taken.empty() && t < f.opened+f.window
}

func (f *fixedWindow) admits(t, before, cost int64) bool {
	used := before
	if f.open(t) {
		used += f.taken.total()
	}
	return used+cost <= f.limit
}

func (f *fixedWindow) wait(int64) int64 { return 0 }

func (f *fixedWindow) remember(t, cost, _ int64) {
	if !f.open(t) {
		f.taken.clear()
		f.opened = t
		if f.align {
			f.opened = t / f.window * f.window
		}
	}
	f.taken.add(t, cost)
}

// lookback counts the requests since an instant that depends only on the time.
type lookback struct {
	limit  int64
	oldest func(t int64) int64 // the instant
	taken  journal
}

func (l *lookback) capacity() int64 { return l.limit }

func (l *lookback) admits(t, before, cost int64) bool {
	return l.taken.from(l.oldest(t))+before+cost <= l.limit
}

func (l *lookback) wait(int64) int64 { return 0 }

func (l *lookback) remember(t, cost, _ int64) {
	l.taken.drop(l.oldest(t))
	l.taken.add(t, cost)
}

// newSlidingLog counts the last window microseconds, including the current one.
func newSlidingLog(r Rule) *lookback {
	return &lookback{limit: r.Limit, oldest: func(t int64) int64 { return t - r.Window + 1 }}
}

// newSlidingWindow counts from the beginning of a part of the window: the current part
// and as many before it as a window has, of which the oldest has partly expired and
// counts in full.
func newSlidingWindow(r Rule) *lookback {
	parts := r.Buckets
	if parts == 0 {
		parts = defaultBuckets
	}
	// The length of a part is rounded up to whole microseconds.
	part := r.Window / parts
	if part*parts < r.Window {
		part++
	}
	return &lookback{limit: r.Limit, oldest: func(t int64) int64 { return (t/part - parts) * part }}
}

// newCalendar counts from the midnight that began the present day, week, month or year.
// The time zone must have all of them, once.
func newCalendar(r Rule) *lookback {
	zone, err := time.LoadLocation(r.Zone)
	if err != nil {
		panic(err)
	}
	return &lookback{limit: r.Limit, oldest: func(t int64) int64 {
		at := time.UnixMicro(t).In(zone)
		y, m, d := at.Date()
		switch r.Period {
		case "week":
			first := "monday"
			if r.From != "" {
				first = r.From
			}
			for strings.ToLower(at.Weekday().String()) != first {
				d--
				at = time.Date(y, m, d, 12, 0, 0, 0, zone)
			}
		case "month":
			first, _ := strconv.Atoi(r.From)
			begins := func() int { // the day on which the period begins that begins in the month of at
				last := time.Date(y, m+1, 1, 12, 0, 0, 0, time.UTC).AddDate(0, 0, -1).Day()
				return max(1, min(first, last))
			}
			if d < begins() {
				m--
			}
			d = begins()
		case "year":
			m, d = time.January, 1
		}
		return time.Date(y, m, d, 0, 0, 0, 0, zone).UnixMicro()
	}}
}
