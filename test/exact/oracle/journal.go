package oracle

// request is an admitted request.
type request struct {
	at   int64 // when it was admitted or, from a queue, leaves
	cost int64
	sum  int64 // of its cost and that of all before it
}

// journal holds every admitted request that still counts, oldest first.
type journal struct {
	requests []request
}

func (j *journal) add(at, cost int64) {
	sum := cost
	if n := len(j.requests); n > 0 {
		sum += j.requests[n-1].sum
	}
	j.requests = append(j.requests, request{at, cost, sum})
}

func (j *journal) empty() bool { return len(j.requests) == 0 }

// total returns the cost of all requests.
func (j *journal) total() int64 {
	if j.empty() {
		return 0
	}
	return j.after(0)
}

// start returns the time of the oldest request, or 0 if there is none.
func (j *journal) start() int64 {
	if j.empty() {
		return 0
	}
	return j.requests[0].at
}

// index returns the index of the first request at or after t.
func (j *journal) index(t int64) int {
	return int(first(int64(len(j.requests)), func(i int64) bool { return j.requests[i].at >= t }))
}

// from returns the cost of the requests at or after t.
func (j *journal) from(t int64) int64 {
	i := j.index(t)
	if i == len(j.requests) {
		return 0
	}
	return j.after(i)
}

// after returns the cost of the i-th and all later requests. The sums include dropped
// requests, so only their difference is meaningful.
func (j *journal) after(i int) int64 {
	return j.requests[len(j.requests)-1].sum - j.requests[i].sum + j.requests[i].cost
}

// drop drops the requests before t.
func (j *journal) drop(t int64) { j.requests = j.requests[j.index(t):] }

// clear drops all requests.
func (j *journal) clear() { j.requests = j.requests[:0] }
