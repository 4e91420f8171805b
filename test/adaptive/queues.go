package main

// queue is one of the known queues.
type queue interface {
	len() int
	push(now float64, r *req) bool
	pop(now float64) *req
	remove(r *req)
	direct(now float64, r *req)
}

// fifo serves the first come first or, with lifo, the last come once the first has waited for 20 ms: adaptive LIFO.
type fifo struct {
	q     []*req
	since []float64
	n     int
	most  int
	lifo  bool
}

func (f *fifo) len() int           { return f.n }
func (*fifo) direct(float64, *req) {}
func (f *fifo) push(now float64, r *req) bool {
	if f.n >= f.most {
		return false
	}
	f.q, f.since = append(f.q, r), append(f.since, now)
	f.n++
	return true
}

func (f *fifo) remove(r *req) {
	for i, x := range f.q {
		if x == r {
			f.q[i] = nil
			f.n--
			return
		}
	}
}

func (f *fifo) pop(now float64) *req {
	for len(f.q) > 0 && f.q[0] == nil {
		f.q, f.since = f.q[1:], f.since[1:]
	}
	for len(f.q) > 0 && f.q[len(f.q)-1] == nil {
		f.q, f.since = f.q[:len(f.q)-1], f.since[:len(f.q)-1]
	}
	if len(f.q) == 0 {
		return nil
	}
	f.n--
	if last := len(f.q) - 1; f.lifo && now-f.since[0] > .02 {
		r := f.q[last]
		f.q, f.since = f.q[:last], f.since[:last]
		return r
	}
	r := f.q[0]
	f.q, f.since = f.q[1:], f.since[1:]
	return r
}

// dagor is WeChat's: it admits levels, of a priority and a hash of the key, up to a threshold that it moves each
// second, to admit 5 % less if requests waited for more than 20 ms on average, and otherwise 1 % more.
type dagor struct {
	fifo
	level    int
	counts   [8 * 128]int
	next     float64
	wait     float64
	waited   float64
	in       int
	admitted int
}

func newDagor(most int) *dagor { return &dagor{fifo: fifo{most: most}, level: 8*128 - 1} }

func (q *dagor) push(now float64, r *req) bool { return q.admit(now, r) && q.fifo.push(now, r) }

func (q *dagor) admit(now float64, r *req) bool {
	if now >= q.next {
		q.move(now)
	}
	l := r.src.band*128 + int(uint32(r.key)*2654435761>>25)
	q.counts[l]++
	q.in++
	if l > q.level {
		return false
	}
	q.admitted++
	return true
}

func (q *dagor) move(now float64) {
	want := int(float64(q.admitted) * 1.01)
	if q.wait/max(1, q.waited) > .02 {
		want = int(float64(q.admitted) * .95)
	}
	sum, l := 0, 0
	for l < len(q.counts)-1 && sum+q.counts[l] <= max(want, 1) {
		sum += q.counts[l]
		l++
	}
	if q.in > 0 {
		q.level = l
	}
	q.next, q.wait, q.waited, q.in, q.admitted = now+1, 0, 0, 0, 0
	clear(q.counts[:])
}

func (q *dagor) direct(now float64, r *req) { q.admit(now, r); q.waited++ }

func (q *dagor) pop(now float64) *req {
	r := q.fifo.pop(now)
	if r != nil {
		q.wait += now - r.came
		q.waited++
	}
	return r
}
