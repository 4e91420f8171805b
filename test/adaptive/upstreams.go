package main

import "math"

// upstream is what serves requests.
type upstream interface {
	start(*sim, *ghost)
	event(*sim, event)
}

// workers has servers(t) workers and a queue. It goes on working for clients that have left.
type workers struct {
	servers func(t float64) int
	slow    func(t float64) float64 // factor of each request's time; nil: 1
	most    int                     // requests in its queue, beyond which it answers with an error; 0: no bound
	delay   float64                 // before the workers, s: of what has no limit
	stall   [2]float64              // when it stands still, from and to
	busy    int
	queue   []*ghost
}

func (u *workers) later(s *sim, t float64, k kind, g *ghost) {
	s.h.push(event{t: t, kind: k, up: u, g: g})
}

func (u *workers) start(s *sim, g *ghost) {
	if u.delay > 0 {
		u.later(s, s.now+u.delay, evJoin, g)
		return
	}
	u.join(s, g)
}

func (u *workers) join(s *sim, g *ghost) {
	switch {
	case u.busy < u.servers(s.now):
		u.serve(s, g)
	case u.most > 0 && len(u.queue) >= u.most:
		u.later(s, s.now+.001, evFail, g)
	default:
		u.queue = append(u.queue, g)
	}
}

func (u *workers) serve(s *sim, g *ghost) {
	u.busy++
	f := 1.
	if u.slow != nil {
		f = u.slow(s.now)
	}
	k := evDone
	if g.stream > 0 {
		k = evFirst
	}
	end := s.now + g.size*f
	if from := max(s.now, u.stall[0]); from < u.stall[1] && end > from {
		end += u.stall[1] - from
	}
	u.later(s, end, k, g)
}

func (u *workers) event(s *sim, e event) {
	switch g := e.g; e.kind {
	case evJoin:
		u.join(s, g)
	case evFail:
		s.firstByte(g, false)
		s.complete(g, false)
	case evFirst:
		s.firstByte(g, true)
		if g.left { // a stream that nobody reads ends
			u.free(s)
			return
		}
		u.later(s, s.now+g.stream, evDone, g)
	case evDone:
		if g.stream == 0 {
			s.firstByte(g, true)
		}
		u.free(s)
		s.complete(g, true)
	}
}

func (u *workers) free(s *sim) {
	u.busy--
	for len(u.queue) > 0 && u.busy < u.servers(s.now) {
		g := u.queue[0]
		u.queue = u.queue[1:]
		if g.stream == 0 || !g.left {
			u.serve(s, g)
		}
	}
}

// shared serves all requests at once: each of n gets speed(n) seconds of service a second.
type shared struct {
	speed   func(n int) float64
	service float64 // of one that has always been there, s
	t       float64
	heap    []*ghost // by end
	version int
}

func (u *shared) advance(now float64) {
	if n := len(u.heap); n > 0 {
		u.service += (now - u.t) * u.speed(n)
	}
	u.t = now
}

func (u *shared) plan(s *sim) {
	u.version++
	if n := len(u.heap); n > 0 {
		d := max(0, u.heap[0].end-u.service) / u.speed(n)
		s.h.push(event{t: s.now + min(d, 0.25), kind: evShared, n: u.version, up: u})
	}
}

func (u *shared) start(s *sim, g *ghost) {
	u.advance(s.now)
	g.end = u.service + g.size
	u.heap = append(u.heap, g)
	for i := len(u.heap) - 1; i > 0 && u.heap[(i-1)/2].end > u.heap[i].end; i = (i - 1) / 2 {
		u.heap[i], u.heap[(i-1)/2] = u.heap[(i-1)/2], u.heap[i]
	}
	u.plan(s)
}

func (u *shared) event(s *sim, e event) {
	if e.n != u.version {
		return
	}
	u.advance(s.now)
	var over []*ghost
	for len(u.heap) > 0 && u.heap[0].end <= u.service+1e-9 {
		over = append(over, u.pop())
	}
	u.plan(s)
	for _, g := range over {
		s.firstByte(g, true)
		s.complete(g, true)
	}
}

func (u *shared) pop() *ghost {
	h := u.heap
	top, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < n && h[c+1].end < h[c].end {
			c++
		}
		if c >= n || h[c].end >= h[i].end {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	u.heap = h
	return top
}

// several spreads requests over upstreams in turns, as reverse_proxy does with round_robin.
type several struct {
	ups  []upstream
	next int
}

func (u *several) start(s *sim, g *ghost) {
	u.next++
	u.ups[u.next%len(u.ups)].start(s, g)
}

func (*several) event(*sim, event) {} // theirs name them

// fixedWorkers returns an upstream with n workers.
func fixedWorkers(n int) func() upstream {
	return func() upstream { return &workers{servers: func(float64) int { return n }} }
}

// cores returns an upstream that shares so many cores. With knee above 0, each is slower the more requests
// are beyond it.
func cores(n, knee float64) func() upstream {
	return func() upstream {
		return &shared{speed: func(k int) float64 {
			f := math.Min(1, n/float64(k))
			if knee > 0 {
				x := math.Max(0, float64(k)-knee) / knee
				f /= 1 + x*x
			}
			return f
		}}
	}
}
