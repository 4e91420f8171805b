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

// slidingLog looks back at the window microseconds that end with this one.
type slidingLog struct {
	limit, window int64
	taken         journal
}

func (l *slidingLog) capacity() int64 { return l.limit }

func (l *slidingLog) oldest(t int64) int64 { return t - l.window + 1 }

func (l *slidingLog) admits(t, before, cost int64) bool {
	return l.taken.from(l.oldest(t))+before+cost <= l.limit
}

func (l *slidingLog) wait(int64) int64 { return 0 }

func (l *slidingLog) remember(t, cost, _ int64) {
	l.taken.forget(l.oldest(t))
	l.taken.add(t, cost)
}

// slidingWindow looks back as far as the beginning of a part of the window:
// the part it is in and as many before it as the window has, of which the
// oldest has partly expired and counts whole.
type slidingWindow struct {
	limit       int64
	parts, part int64 // how many, and how long one is
	taken       journal
}

func newSlidingWindow(r Rule) *slidingWindow {
	w := &slidingWindow{limit: r.Limit, parts: r.Buckets}
	if w.parts == 0 {
		w.parts = defaultBuckets
	}
	// A part that is not whole microseconds is made longer, never shorter.
	w.part = r.Window / w.parts
	if w.part*w.parts < r.Window {
		w.part++
	}
	return w
}

func (w *slidingWindow) capacity() int64 { return w.limit }

func (w *slidingWindow) oldest(t int64) int64 { return (t/w.part - w.parts) * w.part }

func (w *slidingWindow) admits(t, before, cost int64) bool {
	return w.taken.from(w.oldest(t))+before+cost <= w.limit
}

func (w *slidingWindow) wait(int64) int64 { return 0 }

func (w *slidingWindow) remember(t, cost, _ int64) {
	w.taken.forget(w.oldest(t))
	w.taken.add(t, cost)
}
