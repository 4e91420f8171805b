package oracle

// fixedWindow counts in windows that follow each other.
type fixedWindow struct {
	limit, window int64
	align         bool
	opened        int64 // when the window of what is remembered began
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

// lookback counts what was taken since a moment that depends on now alone.
type lookback struct {
	limit  int64
	oldest func(t int64) int64 // since when
	taken  journal
}

func (l *lookback) capacity() int64 { return l.limit }

func (l *lookback) admits(t, before, cost int64) bool {
	return l.taken.from(l.oldest(t))+before+cost <= l.limit
}

func (l *lookback) wait(int64) int64 { return 0 }

func (l *lookback) remember(t, cost, _ int64) {
	l.taken.forget(l.oldest(t))
	l.taken.add(t, cost)
}

// newSlidingLog looks back at the window microseconds that end with this one.
func newSlidingLog(r Rule) *lookback {
	return &lookback{limit: r.Limit, oldest: func(t int64) int64 { return t - r.Window + 1 }}
}

// newSlidingWindow looks back as far as the beginning of a part of the window:
// the part it is in and as many before it as the window has, of which the
// oldest has partly expired and counts whole.
func newSlidingWindow(r Rule) *lookback {
	parts := r.Buckets
	if parts == 0 {
		parts = defaultBuckets
	}
	// A part that is not whole microseconds is made longer, never shorter.
	part := r.Window / parts
	if part*parts < r.Window {
		part++
	}
	return &lookback{limit: r.Limit, oldest: func(t int64) int64 { return (t/part - parts) * part }}
}
