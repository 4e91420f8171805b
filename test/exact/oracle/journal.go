package oracle

// request is an admitted request.
type request struct {
	at   int64 // when it was admitted or, in a queue, when it leaves
	cost int64
	sum  int64 // of its cost and that of all before it
}

// journal is every admitted request that can still matter, oldest first.
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

// total is the cost of all that is remembered.
func (j *journal) total() int64 {
	if j.empty() {
		return 0
	}
	return j.after(0)
}

// start is when the oldest remembered request was, 0 if there is none.
func (j *journal) start() int64 {
	if j.empty() {
		return 0
	}
	return j.requests[0].at
}

// index returns where the requests at or after t begin.
func (j *journal) index(t int64) int {
	return int(first(int64(len(j.requests)), func(i int64) bool { return j.requests[i].at >= t }))
}

// from is the cost of the requests at or after t.
func (j *journal) from(t int64) int64 {
	i := j.index(t)
	if i == len(j.requests) {
		return 0
	}
	return j.after(i)
}

// after is the cost of the i-th request and all after it. The sums count from
// further back than what is remembered, so only their difference has a meaning.
func (j *journal) after(i int) int64 {
	return j.requests[len(j.requests)-1].sum - j.requests[i].sum + j.requests[i].cost
}

// forget drops the requests before t.
func (j *journal) forget(t int64) { j.requests = j.requests[j.index(t):] }

// clear drops all requests.
func (j *journal) clear() { j.requests = j.requests[:0] }
