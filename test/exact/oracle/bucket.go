package oracle

import "math/bits"

// leak is a bucket into which every admitted request is poured and that leaks limit
// per window until it is empty. Its level is what was poured in since it was last
// empty, less what has leaked since.
//
// Fractions of a cost leak too, so comparisons are between products, of a cost and
// the window and of a time and the limit, without rounding.
type leak struct {
	limit, window int64
	step          int64 // leaks only at the multiples of this; 0: continuously
	poured        journal
}

// leaked returns for how long the bucket has leaked at t. The result is negative for
// a queue that begins to leak after t.
func (l *leak) leaked(t int64) int64 {
	if l.step > 0 {
		return (t/l.step - l.poured.start()/l.step) * l.step
	}
	return t - l.poured.start()
}

// fits reports whether the level at t plus more is at most bound plus what leaks in
// the time ahead.
func (l *leak) fits(t, more, bound, ahead int64) bool {
	within := atMost(more-bound, l.window, ahead, l.limit)
	return within && (l.poured.empty() ||
		atMost(l.poured.total()+more-bound, l.window, l.leaked(t)+ahead, l.limit))
}

func (l *leak) empty(t int64) bool { return l.fits(t, 0, 0, 0) }

// bucket is gcra, token_bucket, and leaky_bucket with nodelay: a request passes if
// the bucket does not overflow. Tokens are the free capacity of the bucket, initially
// burst.
type bucket struct {
	leak
	burst int64
}

func newBucket(r Rule, step int64) *bucket {
	b := &bucket{leak: leak{limit: r.Limit, window: r.Window, step: step}, burst: r.Burst}
	if b.burst == 0 {
		b.burst = r.Limit
	}
	return b
}

func (b *bucket) capacity() int64 { return b.burst }

func (b *bucket) admits(t, before, cost int64) bool { return b.fits(t, before+cost, b.burst, 0) }

func (b *bucket) wait(int64) int64 { return 0 }

func (b *bucket) remember(t, cost, _ int64) {
	if b.empty(t) {
		b.poured.clear()
	}
	b.poured.add(t, cost)
}

// queue is a leaky_bucket that delays: the bucket is a queue of requests, each of
// which leaves when those before it have leaked.
type queue struct {
	leak
	burst    int64
	patience int64 // longest wait; 0: any, only the burst is the bound
}

func newQueue(r Rule) *queue {
	q := &queue{leak: leak{limit: r.Limit, window: r.Window}, burst: r.Burst, patience: r.MaxWait}
	if q.burst > 0 {
		return q
	}
	if q.patience == 0 {
		q.patience = defaultMaxWait
	}
	// What drains during the longest wait, plus one request that leaves immediately.
	hi, lo := bits.Mul64(uint64(q.patience), uint64(r.Limit))
	drains, _ := bits.Div64(hi, lo, uint64(r.Window))
	q.burst = int64(drains) + 1
	return q
}

func (q *queue) capacity() int64 { return q.burst }

func (q *queue) admits(t, before, cost int64) bool {
	room := q.fits(t, before+cost, q.burst, 0)
	return room && (q.patience == 0 || q.fits(t, before, 0, q.patience))
}

// wait returns the time, in whole microseconds, until everything in the queue has
// leaked.
func (q *queue) wait(t int64) int64 {
	return after(func(d int64) bool { return q.empty(t + d) })
}

// remember appends the request to the queue. If it leaves later than its position
// requires, the queue does not leak until then, which also delays later requests.
func (q *queue) remember(t, cost, turn int64) {
	if q.empty(t) || turn > q.wait(t) {
		q.poured.clear()
	}
	q.poured.add(t+turn, cost)
}
