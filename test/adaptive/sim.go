package main

import (
	"math"
	"math/rand"
)

// kind is what an event is.
type kind uint8

const (
	evArrive kind = iota // the next arrival of source n
	evRetry
	evExpire // the end of max_wait
	evGone   // the client's own timeout, or a cancel
	evFirst  // the first byte of a stream
	evDone   // a worker of an upstream is done
	evShared // the next request is done of an upstream that shares; n is the version of the plan
	evFail   // an error of an upstream without room
	evJoin   // a request reaches the workers after a fixed delay
)

type event struct {
	t       float64
	kind    kind
	n       int
	r       *req
	attempt int // that the event belongs to
	up      upstream
	g       *ghost
}

// events is a heap by time.
type events []event

func (h *events) push(e event) {
	*h = append(*h, e)
	i := len(*h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if (*h)[p].t <= e.t {
			break
		}
		(*h)[i] = (*h)[p]
		i = p
	}
	(*h)[i] = e
}

func (h *events) pop() event {
	o := *h
	top, n := o[0], len(o)-1
	e := o[n]
	o[n] = event{}
	o = o[:n]
	for i := 0; n > 0; {
		c := 2*i + 1
		if c+1 < n && o[c+1].t < o[c].t {
			c++
		}
		if c >= n || o[c].t >= e.t {
			o[i] = e
			break
		}
		o[i] = o[c]
		i = c
	}
	*h = o
	return top
}

// state is where a request is.
type state uint8

const (
	stNew state = iota
	stQueued
	stRunning
	stOver
)

// req is a request of a client, with all its attempts.
type req struct {
	came    float64 // the first attempt
	sent    float64 // this attempt, to the upstream
	size    float64 // how long a worker takes, s
	stream  float64 // how long it streams after its first byte, s
	src     *source
	key     int
	attempt int
	state   state
	gate    gate
	seat    any // what the gate knows of it
	ghost   *ghost
}

// ghost is the upstream's side of an attempt: it goes on when the client leaves.
type ghost struct {
	r       *req
	attempt int
	size    float64
	stream  float64
	end     float64 // of an upstream that shares: the service at which it is done
	left    bool
}

// source is where requests come from.
type source struct {
	rate    func(t float64) float64 // a second
	max     float64                 // the greatest rate
	key     int
	keys    int // they are spread over so many keys from key on; 0: one
	band    int
	size    func(*rand.Rand) float64
	stream  func(*rand.Rand) float64
	foreign bool                     // of somebody else, past the limiter
	cancels func(*rand.Rand) float64 // after how long the client leaves; nil: its timeout
}

// scenario is a load before an upstream.
type scenario struct {
	name    string
	seconds float64
	src     []source
	up      func() upstream
	timeout float64 // of the clients
	retries int
	gates   int     // instances; 0: one
	skew    float64 // by how much their clocks differ at most, s
	maxWait float64
	waiting int
	from    float64 // measured from then on
	errors  float64 // part of the answers that are errors whatever the load
	best    int     // the best fixed limit of all instances together, as search finds it
}

type sim struct {
	now   float64
	h     events
	rng   *rand.Rand
	sc    *scenario
	up    upstream
	gates []gate
	res   *result
	began int64 // us: where the run begins in the phases
}

// result is what a run counted.
type result struct {
	offered, attempts, good, denied float64
	latencies                       []float64
	keys                            map[int]*[2]float64 // offered, good
	bands                           [8][2]float64
	limits                          []float64 // each second, all instances
	offeredAt, goodAt               []float64 // each second
}

func (s *sim) at(t float64, k kind, n int, r *req) {
	a := 0
	if r != nil {
		a = r.attempt
	}
	s.h.push(event{t: t, kind: k, n: n, r: r, attempt: a})
}

// run runs a scenario before gates of a kind.
func run(sc *scenario, newGate func(i int, s *sim) gate, seed int64) *result {
	s := &sim{rng: rand.New(rand.NewSource(seed)), sc: sc, up: sc.up()} //nolint:gosec // a simulation
	s.began = rand.New(rand.NewSource(-seed)).Int63n(1 << 40)           //nolint:gosec // a simulation
	s.res = &result{keys: map[int]*[2]float64{}}
	s.res.offeredAt, s.res.goodAt = make([]float64, int(sc.seconds)+1), make([]float64, int(sc.seconds)+1)
	for i := range max(1, sc.gates) {
		s.gates = append(s.gates, newGate(i, s))
	}
	for i := range sc.src {
		s.at(s.rng.ExpFloat64()/sc.src[i].max, evArrive, i, nil)
	}
	for len(s.h) > 0 {
		e := s.h.pop()
		if e.t > sc.seconds {
			break
		}
		s.now = e.t
		for len(s.res.limits) <= int(e.t) {
			sum := 0.
			for _, g := range s.gates {
				sum += float64(g.limit())
			}
			s.res.limits = append(s.res.limits, sum)
		}
		s.handle(e)
	}
	return s.res
}

func (s *sim) handle(e event) {
	switch r := e.r; e.kind {
	case evArrive:
		s.arrival(&s.sc.src[e.n], e.n)
	case evRetry:
		s.attempt(r)
	case evExpire:
		if e.attempt == r.attempt && r.state == stQueued {
			r.gate.leave(r)
			s.deny(r)
		}
	case evGone:
		if e.attempt == r.attempt && r.state != stOver {
			s.gone(r)
		}
	case evJoin, evFail, evFirst, evDone, evShared:
		e.up.event(s, e)
	}
}

func (s *sim) arrival(src *source, n int) {
	s.at(s.now+s.rng.ExpFloat64()/src.max, evArrive, n, nil)
	if s.rng.Float64()*src.max > src.rate(s.now) {
		return
	}
	r := &req{came: s.now, size: src.size(s.rng), key: src.key, src: src}
	if src.keys > 1 {
		r.key += s.rng.Intn(src.keys)
	}
	if src.stream != nil {
		r.stream = src.stream(s.rng)
	}
	if s.counts(r) {
		s.res.offered++
		s.res.offeredAt[int(s.now)]++
		s.key(r.key)[0]++
		s.res.bands[src.band][0]++
	}
	s.attempt(r)
}

// counts reports whether a request is measured.
func (s *sim) counts(r *req) bool { return !r.src.foreign && r.came >= s.sc.from }

func (s *sim) key(k int) *[2]float64 {
	v := s.res.keys[k]
	if v == nil {
		v = new([2]float64)
		s.res.keys[k] = v
	}
	return v
}

func (s *sim) attempt(r *req) {
	r.attempt++
	r.state = stNew
	timeout := s.sc.timeout
	if r.src.cancels != nil {
		timeout = r.src.cancels(s.rng)
	}
	s.at(s.now+timeout, evGone, 0, r)
	if r.src.foreign {
		s.send(r)
		return
	}
	if s.counts(r) {
		s.res.attempts++
	}
	r.gate = s.gates[0]
	if len(s.gates) > 1 {
		r.gate = s.gates[s.rng.Intn(len(s.gates))]
	}
	r.gate.enter(r)
	if r.state == stQueued {
		s.at(s.now+s.sc.maxWait, evExpire, 0, r)
	}
}

// send sends a request to the upstream.
func (s *sim) send(r *req) {
	r.state, r.sent = stRunning, s.now
	r.ghost = &ghost{r: r, attempt: r.attempt, size: r.size, stream: r.stream}
	s.up.start(s, r.ghost)
}

// gone has the client leave.
func (s *sim) gone(r *req) {
	was := r.state
	r.state = stOver
	switch was {
	case stQueued:
		r.gate.leave(r)
	case stRunning:
		r.ghost.left = true
		if r.gate != nil {
			r.gate.answered(r, false, true)
			r.gate.release(r, false, true)
		}
	}
	s.again(r)
}

func (s *sim) deny(r *req) {
	r.state = stOver
	if s.counts(r) {
		s.res.denied++
	}
	s.again(r)
}

// again has the client try again, after a second, two and so on.
func (s *sim) again(r *req) {
	if r.attempt > s.sc.retries || r.src.foreign || r.src.cancels != nil {
		return
	}
	s.at(s.now+(0.5+s.rng.Float64())*math.Pow(2, float64(r.attempt-1)), evRetry, 0, r)
}

// firstByte is called by upstreams. With ok false the request has failed.
func (s *sim) firstByte(g *ghost, ok bool) {
	r := g.r
	if g.left || r.attempt != g.attempt || r.src.foreign {
		return
	}
	ok = ok && (s.sc.errors == 0 || s.rng.Float64() >= s.sc.errors)
	if ok && s.counts(r) {
		s.res.good++
		s.res.goodAt[int(s.now)]++
		s.res.latencies = append(s.res.latencies, s.now-r.came)
		s.key(r.key)[1]++
		s.res.bands[r.src.band][1]++
	}
	r.gate.answered(r, ok, false)
	if r.stream > 0 && ok {
		r.attempt += 1000 // it has no timeout once it streams
		g.attempt = r.attempt
	}
}

// complete is called by upstreams at the end of a request.
func (s *sim) complete(g *ghost, ok bool) {
	r := g.r
	if g.left || r.attempt != g.attempt || r.state != stRunning {
		return
	}
	r.state = stOver
	if r.gate == nil {
		return
	}
	r.gate.release(r, ok, false)
	if !ok {
		s.again(r)
	}
}
